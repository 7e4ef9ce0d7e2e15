// Goal: no bytes, and no split of them, crash the request parser, and the outcome does not depend on the split.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "net/request_assembler.h"

namespace headrace {
namespace {

struct Outcome {
  int status = -1;  // of the refusal, 0: done, -1: unfinished
  std::string body;
  bool operator==(const Outcome&) const = default;
};

Outcome Feed(std::string_view bytes, size_t step) {
  constexpr RequestLimits kLimits{512, 4096};
  RequestAssembler assembler(kLimits);
  std::string inbox;
  while (!bytes.empty()) {
    inbox += bytes.substr(0, step);
    bytes.remove_prefix(std::min(step, bytes.size()));
    for (;;) {
      size_t consumed = 0;
      const auto result = assembler.Feed(inbox, consumed);
      if (consumed > inbox.size() || assembler.request().body.size() > kLimits.body_bytes_max) std::abort();
      inbox.erase(0, consumed);
      if (result == RequestAssembler::Step::kRefused) return {assembler.refusal().status, {}};
      if (assembler.done()) return {0, assembler.request().body};
      if (result == RequestAssembler::Step::kNeedMore || inbox.empty()) break;
    }
  }
  return {};
}

}  // namespace
}  // namespace headrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto whole = headrace::Feed(bytes, bytes.size());
  const auto split = headrace::Feed(bytes, data[0] % 64 + 1);
  // Which of two faults is met first may differ; whether there is one may not.
  if ((whole.status == 0) != (split.status == 0) || (whole.status == 0 && whole.body != split.body)) std::abort();
  return 0;
}
