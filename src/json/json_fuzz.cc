// Goal: no bytes crash the parser; what it accepts reads back the same after DumpJson, and strings survive the escaper.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "json/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const JsonLimits limits{.bytes_max = 1 << 16, .depth_max = 64, .nodes_max = 1 << 12};
  if (auto parsed = ParseJson(text, limits)) {
    auto again = ParseJson(DumpJson(*parsed), {});
    CHECK(again.has_value());
    CHECK(*again == *parsed);
  }
  std::string quoted;
  AppendJsonString(quoted, text);
  CHECK(ParseJson(quoted, {}).has_value());
  return 0;
}
