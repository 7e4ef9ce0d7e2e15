// Goal: no body crashes a parser; what is accepted keeps the promises of request.h; every error has a valid body.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "api/error.h"
#include "api/request.h"
#include "api/tokenize.h"
#include "base/check.h"

namespace headrace {
namespace {

void CheckPromises(const Result<GenerationRequest>& request, const ApiLimits& limits) {
  if (!request) {
    CHECK(ParseJson(ToOpenAiError(request.error()).body, {}).has_value());
    return;
  }
  CHECK(!request->model.empty());
  CHECK(request->n >= 1 && request->n <= limits.n_max && request->best_of >= request->n);
  CHECK(request->sampling.temperature >= 0 && request->sampling.temperature <= 2);
  CHECK(request->sampling.repetition_penalty > 0);
  CHECK(request->sampling.top_k >= 0);
  for (const std::string& stop : request->stop) CHECK(!stop.empty());
  if (request->kind == GenerationRequest::Kind::kChat) {
    CHECK(!request->messages.empty());
    for (const Json& message : request->messages) CHECK(message["content"].is_string());
  } else {
    CHECK(!request->prompts.empty() && request->max_tokens.has_value());
  }
  (void)ValidateTokenIds(*request, 1000);
}

}  // namespace
}  // namespace headrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const ApiLimits limits;
  CheckPromises(ParseChatRequest(body, limits), limits);
  CheckPromises(ParseCompletionRequest(body, limits), limits);
  (void)ParseTokenizeRequest(body, limits);
  (void)ParseDetokenizeRequest(body, limits);
  return 0;
}
