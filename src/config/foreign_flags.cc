#include "config/foreign_flags.h"

#include <algorithm>
#include <array>

namespace headrace {
namespace {

constexpr std::array kForeignFlags = {
    ForeignFlag{"dtype", "auto", "weights keep the type that the model's file has"},
    ForeignFlag{"trust-remote-code", "", ""},
    ForeignFlag{"generation-config", "auto", "send temperature, top_p and the others with the request"},
    ForeignFlag{"disable-log-requests", "", ""},
    ForeignFlag{"enforce-eager", "", ""},
    ForeignFlag{"tensor-parallel-size", "1", "one process serves a model, on the cores of this machine (--threads N)"},
};

}  // namespace

const ForeignFlag* FindForeignFlag(std::string_view flag) {
  if (!flag.starts_with("--")) return nullptr;
  flag.remove_prefix(2);
  const auto same = [](char x, char y) { return (x == '_' ? '-' : x) == y; };
  const auto at = std::ranges::find_if(
      kForeignFlags, [&](const ForeignFlag& foreign) { return std::ranges::equal(flag, foreign.name, same); });
  return at == kForeignFlags.end() ? nullptr : &*at;
}

}  // namespace headrace
