// What a client asked for, whichever dialect it spoke: validated, normalised, without I/O. Free functions, any thread.
//
// Rules: null is absent. A known field that is not served yet is kUnsupported with the field and a remedy, never
// dropped; a name nobody knows is accepted and listed in unknown_fields (see field_rules.h). Every error names its
// field the way OpenAI's `param` does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "api/limits.h"
#include "base/result.h"
#include "json/json.h"

namespace headrace {

// A model's generation_config.json; unset: the API's own default stays.
struct SamplingDefaults {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;
};

struct SamplingFields {
  double temperature = 1;                             // [0, 2], 0 is greedy
  double top_p = 1;                                   // [0, 1], 0 is greedy
  double min_p = 0;                                   // [0, 1]
  double presence_penalty = 0;                        // [-2, 2]
  double frequency_penalty = 0;                       // [-2, 2]
  double repetition_penalty = 1;                      // [0.001, 10]; below, a float could become 0
  int64_t top_k = 0;                                  // 0: off (-1 is read as 0)
  std::optional<uint64_t> seed;                       // any int64, its bits
  std::vector<std::pair<int32_t, float>> logit_bias;  // distinct ids, values in [-100, 100]

  // What the client wrote itself; the rest may be filled from the model.
  struct Given {
    bool temperature = false, top_p = false, min_p = false, repetition_penalty = false, top_k = false;
  } given;

  void FillFrom(const SamplingDefaults& defaults);
};

using Prompt = std::variant<std::string, std::vector<int32_t>>;

// What the answer must be, whole.
struct Constraint {
  enum class Kind { kNone, kJsonSchema, kRegex, kLark };
  Kind kind = Kind::kNone;
  std::string text;
  std::string field;  // that says so, for errors
};
// What response_format of type json_object asks for.
constexpr std::string_view kAnyObjectSchema = R"({"type":"object"})";

struct GenerationRequest {
  enum class Kind { kChat, kCompletion };
  Kind kind = Kind::kChat;
  std::string model;  // never empty
  bool stream = false;
  bool include_usage = false;

  int n = 1;
  int best_of = 1;  // candidates for each prompt, at least n; above n, the n of the highest mean logprob are returned
  bool echo = false;
  bool logprobs = false;
  int top_logprobs = 0;
  std::optional<int> prompt_logprobs;  // the caller honours or refuses it
  std::optional<int64_t> max_tokens;   // absent: the rest of the context (chat); always set for completions
  int64_t min_tokens = 0;
  bool ignore_eos = false;
  SamplingFields sampling;

  Constraint constraint;
  std::vector<std::string> stop;  // none is empty
  std::vector<int32_t> stop_token_ids;
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;
  std::optional<bool> add_special_tokens;

  Json messages;  // chat: as NormaliseMessages returns them
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  Json chat_template_kwargs = Json::object();  // the caller applies its allow-list; never holds "chat_template"
  std::vector<Prompt> prompts;                 // completions: at least one; a text may be empty, a list of ids may not

  std::string user;
  std::string safety_identifier;
  std::string service_tier;                 // "" or auto, default, flex, scale, priority, fast
  std::string prompt_cache_key;             // a name for the prompt, for who routes by it; changes nothing here
  int64_t prompt_cache_seconds = 0;         // prompt_cache_retention, prompt_cache_options.ttl; 0: while there is room
  std::string cache_salt;                   // requests of different salts share no cached prompts
  std::string reasoning_effort;             // "" or none ... max
  std::string verbosity;                    // "" or low, medium, high
  int32_t priority = 0;                     // lower goes first
  std::optional<int64_t> deadline_ms;       // `deadline_ms`, counted from arrival; ours
  std::vector<std::string> unknown_fields;  // "foo", "messages[].foo"; at most ApiLimits::unknown_fields_max
};

Result<GenerationRequest> ParseChatRequest(std::string_view body, const ApiLimits& limits);
Result<GenerationRequest> ParseCompletionRequest(std::string_view body, const ApiLimits& limits);

// The fields of a chat request that say how to sample and where to end, from an object that holds nothing else: for
// callers that keep them as settings. Ranges and errors are those of a request.
Status ReadChatSettings(const Json& object, const ApiLimits& limits, GenerationRequest* request);

// Ids of prompts, logit_bias and stop_token_ids lie in [0, vocab_size), added tokens included.
Status ValidateTokenIds(const GenerationRequest& request, int32_t vocab_size);

}  // namespace headrace
