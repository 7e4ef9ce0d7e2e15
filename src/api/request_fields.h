// Readers of the fields that chat and completions share. Internal to api/.
#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include "api/limits.h"
#include "api/request.h"
#include "base/result.h"
#include "json/json_fields.h"

namespace headrace {

// Keeps *out when the field is absent; says in *given whether it was there.
template <typename T, typename U>
Status Store(Result<std::optional<T>> read, U* out, bool* given = nullptr) {
  if (!read) return Fail(std::move(read).error());
  if (given != nullptr) *given = read->has_value();
  if (read->has_value()) *out = static_cast<U>(std::move(**read));
  return {};
}

// The body as an object, counted against the limits. nodes_left receives what tool-call arguments may still use.
Result<Json> ParseBody(std::string_view body, const ApiLimits& limits, size_t* nodes_left);

// model, stream, stream_options, n, user and the other fields that are not about tokens.
Status ReadEnvelope(JsonFields& fields, const ApiLimits& limits, GenerationRequest* request);
// temperature ... logit_bias, seed.
Status ReadSampling(JsonFields& fields, const ApiLimits& limits, SamplingFields* sampling);
// stop, stop_token_ids, min_tokens, ignore_eos and what else decides where the text ends and how ids become text.
Status ReadEnding(JsonFields& fields, const ApiLimits& limits, GenerationRequest* request);
// add_generation_prompt, continue_final_message and chat_template_kwargs.
struct TemplateFields {
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  Json kwargs = Json::object();
};
Result<TemplateFields> ReadTemplate(JsonFields& fields, const Json& messages);
// Ids in [0, 2^31) from an array.
Result<std::vector<int32_t>> ReadTokenIds(const Json& array, const std::string& path);
// Adds names, each once, up to the limit.
void NoteUnknown(const std::vector<std::string>& names, std::string_view prefix, const ApiLimits& limits,
                 std::vector<std::string>* unknown);

}  // namespace headrace
