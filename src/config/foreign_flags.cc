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
    ForeignFlag{"speculative-config", R"({"method": "ngram"})",
                "drafts come from the texts themselves (--speculation lookup, the default), at most "
                "--speculation-tokens N of them"},
    ForeignFlag{"tensor-parallel-size", "1", "one process serves a model, on the cores of this machine (--threads N)"},
};

constexpr std::array kForeignSwitches = {
    ForeignSwitch{"enable-prefix-caching", "prefix-cache", "on"},
    ForeignSwitch{"no-enable-prefix-caching", "prefix-cache", "off"},
};

template <typename Table>
auto Find(const Table& table, std::string_view flag) -> decltype(table.data()) {
  if (!flag.starts_with("--")) return nullptr;
  flag.remove_prefix(2);
  const auto same = [](char x, char y) { return (x == '_' ? '-' : x) == y; };
  const auto at =
      std::ranges::find_if(table, [&](const auto& foreign) { return std::ranges::equal(flag, foreign.name, same); });
  return at == table.end() ? nullptr : &*at;
}

}  // namespace

const ForeignFlag* FindForeignFlag(std::string_view flag) { return Find(kForeignFlags, flag); }

const ForeignSwitch* FindForeignSwitch(std::string_view flag) { return Find(kForeignSwitches, flag); }

}  // namespace headrace
