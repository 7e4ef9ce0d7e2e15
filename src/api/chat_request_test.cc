// Goal: every field of a chat request means what the API says (C7-C14, C24-C34, T4, T7) or is refused by name; nothing
// is dropped, and edge values are either served or a 400 (O-11, O-13, O-25, O-41).
#include "api/request_cases.h"

namespace headrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(ChatRequest, Defaults) {
  const GenerationRequest r = Chat();
  EXPECT_EQ(r.kind, GenerationRequest::Kind::kChat);
  EXPECT_EQ(r.model, "m");
  EXPECT_FALSE(r.stream);
  EXPECT_FALSE(r.include_usage);
  EXPECT_EQ(r.n, 1);
  EXPECT_EQ(r.max_tokens, std::nullopt);
  EXPECT_EQ(r.sampling.temperature, 1);
  EXPECT_EQ(r.sampling.top_p, 1);
  EXPECT_EQ(r.sampling.top_k, 0);
  EXPECT_EQ(r.sampling.repetition_penalty, 1);
  EXPECT_EQ(r.sampling.seed, std::nullopt);
  EXPECT_FALSE(r.sampling.given.temperature);
  EXPECT_TRUE(r.add_generation_prompt);
  EXPECT_TRUE(r.skip_special_tokens);
  EXPECT_TRUE(r.stop.empty());
  EXPECT_TRUE(r.unknown_fields.empty());
}

TEST(ChatRequest, T4BodiesThatAreNoRequest) {
  for (const char* body : {"", "{", "[]", "null", "3", "\"x\"", "{\"model\":\"m\"}x"})
    ExpectRefused(ParseChatRequest, body, "");
  ExpectRefused(ParseChatRequest, R"({"messages":[{"role":"user","content":"hi"}]})", "model", "required");
  ExpectRefused(ParseChatRequest, R"({"model":"","messages":[{"role":"user","content":"hi"}]})", "model", "required");
  ExpectRefused(ParseChatRequest, R"({"model":7,"messages":[]})", "model", "an integer");
}

TEST(ChatRequest, NullIsAbsentEverywhere) {
  const GenerationRequest r = Chat(
      R"("temperature":null,"top_p":null,"top_k":null,"min_p":null,"n":null,"stop":null,"seed":null,"logit_bias":null,"max_tokens":null,)"
      R"("max_completion_tokens":null,"stream":null,"stream_options":null,"logprobs":null,"top_logprobs":null,"tools":null,"tool_choice":null,)"
      R"("response_format":null,"user":null,"audio":null,"modalities":null,"functions":null,"function_call":null,"chat_template":null,)"
      R"("guided_json":null,"metadata":null,"store":null,"service_tier":null,"reasoning_effort":null,"prediction":null,"priority":null,"presence_penalty":null)");
  EXPECT_EQ(r.sampling.temperature, 1);
  EXPECT_FALSE(r.sampling.given.temperature);
  EXPECT_TRUE(r.unknown_fields.empty());
}

TEST(ChatRequest, T7UnknownFieldsAreListedOnceAndAccepted) {
  const GenerationRequest r = Accepted(ParseChatRequest(
      WithMessages(
          R"([{"role":"user","content":"a","cache_control":1},{"role":"user","content":"b","cache_control":1}])",
          R"("foo":1,"bar":{"x":2})"),
      {}));
  EXPECT_THAT(r.unknown_fields, ElementsAre("messages[].cache_control", "foo", "bar"));
}

TEST(ChatRequest, C7EmptyMessages) {
  ExpectRefused(ParseChatRequest, WithMessages("[]"), "messages", "at least one");
  ExpectRefused(ParseChatRequest, WithMessages("null"), "messages", "at least one");
  ExpectRefused(ParseChatRequest, WithMessages("\"hi\""), "messages", "an array");
  ExpectRefused(ParseChatRequest, R"({"model":"m"})", "messages", "at least one");
}

TEST(ChatRequest, C8MaxTokens) {
  EXPECT_EQ(Chat(R"("max_tokens":5)").max_tokens, 5);
  EXPECT_EQ(Chat(R"("max_completion_tokens":7)").max_tokens, 7);
  EXPECT_EQ(Chat(R"("max_tokens":5,"max_completion_tokens":7)").max_tokens, 7);
  EXPECT_EQ(Chat(R"("max_tokens":2147483648)").max_tokens, 2147483648);
  EXPECT_EQ(Chat(R"("max_tokens":5.0)").max_tokens, 5);
  for (const char* bad : {"0", "-1", "1.5", "\"5\"", "true", "1e300", "[]"}) {
    ExpectRefused(ParseChatRequest, ChatBody(std::string(R"("max_tokens":)") + bad), "max_tokens");
    ExpectRefused(ParseChatRequest, ChatBody(std::string(R"("max_completion_tokens":)") + bad),
                  "max_completion_tokens");
  }
}

struct NumberCase {
  const char* field;
  std::vector<const char*> good;
  std::vector<const char*> bad;
};

TEST(ChatRequest, C9AndO11NumbersAndTheirRanges) {
  const NumberCase cases[] = {
      {"temperature",
       {"0", "1e-4", "1e-30", "2", "2.0", "1"},
       {"-1", "-0.001", "2.001", "1e400", "-1e400", "\"1\"", "true", "[]", "{}", "NaN"}},
      {"top_p", {"0", "0.5", "1"}, {"-1", "1.1", "\"x\"", "false"}},
      {"min_p", {"0", "1", "0.05"}, {"-0.1", "1.1", "true"}},
      {"presence_penalty", {"-2", "0", "2"}, {"-2.1", "2.1", "\"0\""}},
      {"frequency_penalty", {"-2", "1.05", "2"}, {"-3", "3", "true"}},
      {"repetition_penalty", {"0.001", "1", "1.3", "10"}, {"0", "-1", "10.1", "1e-40", "true"}},
      {"top_k", {"-1", "0", "1", "1000000000", "40.0"}, {"-2", "0.5", "\"40\"", "true", "1e300"}},
      {"seed",
       {"-9223372036854775808", "9223372036854775807", "42", "0"},
       {"9223372036854775808", "1.5", "true", "\"42\""}},
      {"n", {"1", "128", "2.0"}, {"0", "-1", "129", "1000000", "1.5", "true"}},
      {"min_tokens", {"0", "3"}, {"-1", "0.5", "true"}},
      {"priority", {"-5", "0", "7"}, {"1e10", "0.5"}},
      {"deadline_ms", {"1", "60000"}, {"0", "-1", "0.5"}},
      {"prompt_logprobs", {"0", "20"}, {"-1", "21"}},
  };
  for (const NumberCase& c : cases) {
    for (const char* good : c.good) Chat("\"" + std::string(c.field) + "\":" + good);
    for (const char* bad : c.bad) {
      const std::string field = "\"" + std::string(c.field) + "\":" + bad;
      ExpectRefused(ParseChatRequest, ChatBody(field), c.field);
      ExpectRefused(ParseCompletionRequest, CompletionBodyWith(field), c.field);
    }
  }
}

TEST(ChatRequest, TopKOffHasOneSpelling) {
  for (const char* off : {"-1", "0"}) EXPECT_EQ(Chat(std::string(R"("top_k":)") + off).sampling.top_k, 0);
}

TEST(ChatRequest, C12SeedKeepsAllBits) {
  EXPECT_EQ(Chat(R"("seed":-1)").sampling.seed, UINT64_MAX);
  EXPECT_EQ(Chat(R"("seed":0)").sampling.seed, 0u);
}

TEST(ChatRequest, ModelDefaultsFillOnlyWhatTheClientLeftOut) {
  GenerationRequest r = Chat(R"("temperature":1,"top_k":0)");
  r.sampling.FillFrom(
      {.temperature = 0.6, .top_p = 0.95, .min_p = std::nullopt, .repetition_penalty = 1.1, .top_k = 20});
  EXPECT_EQ(r.sampling.temperature, 1);
  EXPECT_EQ(r.sampling.top_k, 0);
  EXPECT_EQ(r.sampling.top_p, 0.95);
  EXPECT_EQ(r.sampling.repetition_penalty, 1.1);
  EXPECT_EQ(r.sampling.min_p, 0);
}

TEST(ChatRequest, C10AndO25Stops) {
  EXPECT_THAT(Chat(R"("stop":"END")").stop, ElementsAre("END"));
  EXPECT_THAT(Chat(R"("stop":["a","b","c","d","e"])").stop, ElementsAre("a", "b", "c", "d", "e"));
  EXPECT_TRUE(Chat(R"("stop":[])").stop.empty());
  ExpectRefused(ParseChatRequest, ChatBody(R"("stop":"")"), "stop", "empty stop string");
  ExpectRefused(ParseChatRequest, ChatBody(R"("stop":["a",""])"), "stop[1]", "empty stop string");
  ExpectRefused(ParseChatRequest, ChatBody(R"("stop":["a",1])"), "stop[1]", "a string");
  ExpectRefused(ParseChatRequest, ChatBody(R"("stop":{"a":1})"), "stop");
}

TEST(ChatRequest, C13AndO13LogitBias) {
  const GenerationRequest r = Chat(R"("logit_bias":{"42":-100,"7":1.5,"0":100})");
  EXPECT_THAT(r.sampling.logit_bias, ElementsAre(Pair(42, -100.0f), Pair(7, 1.5f), Pair(0, 100.0f)));
  EXPECT_TRUE(Chat(R"("logit_bias":{})").sampling.logit_bias.empty());
  for (const char* key : {"-1", "abc", "", "1.5", "01", "+1", " 1", "99999999999"}) {
    ExpectRefused(ParseChatRequest, ChatBody(R"("logit_bias":{")" + std::string(key) + R"(":1})"), "logit_bias",
                  "token id");
  }
  for (const char* value : {"101", "-100.5", "\"1\"", "true", "null", "1e400"}) {
    ExpectRefused(ParseChatRequest, ChatBody(R"("logit_bias":{"5":)" + std::string(value) + "}"), "logit_bias.5");
  }
  ExpectRefused(ParseChatRequest, ChatBody(R"("logit_bias":{"5":NaN})"), "logit_bias.5");
  ExpectRefused(ParseChatRequest, ChatBody(R"("logit_bias":[[5,1]])"), "logit_bias");
}

TEST(ChatRequest, O13IdsAreCheckedAgainstTheVocabulary) {
  EXPECT_TRUE(ValidateTokenIds(Chat(R"("logit_bias":{"99":1,"0":1},"stop_token_ids":[99])"), 100).has_value());
  const Status bias = ValidateTokenIds(Chat(R"("logit_bias":{"100":1})"), 100);
  ASSERT_FALSE(bias.has_value());
  EXPECT_EQ(bias.error().field, "logit_bias");
  EXPECT_THAT(bias.error().message, HasSubstr("0 to 99"));
  EXPECT_EQ(ValidateTokenIds(Chat(R"("stop_token_ids":[100])"), 100).error().field, "stop_token_ids");
  ExpectRefused(ParseChatRequest, ChatBody(R"("stop_token_ids":[1,-1])"), "stop_token_ids[1]");
}

TEST(ChatRequest, C14Logprobs) {
  const GenerationRequest r = Chat(R"("logprobs":true,"top_logprobs":20)");
  EXPECT_TRUE(r.logprobs);
  EXPECT_EQ(r.top_logprobs, 20);
  EXPECT_FALSE(Chat(R"("top_logprobs":0)").logprobs);
  ExpectRefused(ParseChatRequest, ChatBody(R"("top_logprobs":2)"), "top_logprobs", "logprobs");
  ExpectRefused(ParseChatRequest, ChatBody(R"("logprobs":false,"top_logprobs":2)"), "top_logprobs", "logprobs");
  ExpectRefused(ParseChatRequest, ChatBody(R"("logprobs":1)"), "logprobs");
  ExpectRefused(ParseChatRequest, ChatBody(R"("logprobs":true,"top_logprobs":21)"), "top_logprobs", "0 to 20");
  ExpectRefused(ParseChatRequest, ChatBody(R"("logprobs":true,"top_logprobs":-1)"), "top_logprobs");
}

TEST(ChatRequest, C25StreamOptions) {
  EXPECT_TRUE(Chat(R"("stream":true,"stream_options":{"include_usage":true})").include_usage);
  EXPECT_FALSE(
      Chat(R"("stream":true,"stream_options":{"include_usage":false,"include_obfuscation":true})").include_usage);
  EXPECT_FALSE(Chat(R"("stream":true,"stream_options":{})").include_usage);
  ExpectRefused(ParseChatRequest, ChatBody(R"("stream_options":{"include_usage":true})"), "stream_options", "stream");
  ExpectRefused(ParseChatRequest, ChatBody(R"("stream":false,"stream_options":{})"), "stream_options", "stream");
  ExpectRefused(ParseChatRequest, ChatBody(R"("stream":"true")"), "stream");
  ExpectRefused(ParseChatRequest, ChatBody(R"("stream":true,"stream_options":{"include_usage":1})"),
                "stream_options.include_usage");
  ExpectRefused(ParseChatRequest, ChatBody(R"("stream":true,"stream_options":{"continuous_usage_stats":true})"),
                "stream_options.continuous_usage_stats", "", ErrorCode::kUnsupported);
}

// OpenAI's words, old and new, and Anthropic's; in chat and completions alike.
TEST(ChatRequest, RetentionOfThePromptCache) {
  const std::pair<const char*, int64_t> words[] = {{"in_memory", 0}, {"in-memory", 0}, {"5m", 300},
                                                   {"30m", 1800},    {"1h", 3600},     {"24h", 86'400}};
  for (const auto& [word, seconds] : words) {
    const std::string field = R"("prompt_cache_retention":")" + std::string(word) + "\"";
    const std::string ttl = R"("prompt_cache_options":{"mode":"explicit","ttl":")" + std::string(word) + "\"}";
    for (const std::string& body : {field, ttl}) {
      EXPECT_EQ(Chat(body).prompt_cache_seconds, seconds) << body;
      EXPECT_EQ(Completion(body).prompt_cache_seconds, seconds) << body;
      EXPECT_TRUE(Completion(body).unknown_fields.empty()) << body;
    }
  }
  EXPECT_EQ(Chat().prompt_cache_seconds, 0);
  EXPECT_EQ(Chat(R"("prompt_cache_retention":null,"prompt_cache_options":{})").prompt_cache_seconds, 0);
  EXPECT_EQ(Chat(R"("prompt_cache_retention":"1h","prompt_cache_options":{"ttl":"30m"})").prompt_cache_seconds, 3600);
  EXPECT_EQ(Chat(R"("prompt_cache_options":{"x":1})").unknown_fields,
            std::vector<std::string>{"prompt_cache_options.x"});
  for (const char* value : {R"("")", R"("7d")", R"("24H")", R"("24h ")", R"("-1h")"}) {
    const std::string field = R"("prompt_cache_retention":)" + std::string(value);
    ExpectRefused(ParseChatRequest, ChatBody(field), "prompt_cache_retention", "24h");
    ExpectRefused(ParseCompletionRequest, CompletionBodyWith(field), "prompt_cache_retention", "one of");
  }
  ExpectRefused(ParseChatRequest, ChatBody(R"("prompt_cache_retention":300)"), "prompt_cache_retention", "24h");
  ExpectRefused(ParseChatRequest, ChatBody(R"("prompt_cache_options":{"ttl":"ever"})"), "prompt_cache_options.ttl",
                "24h");
  ExpectRefused(ParseChatRequest, ChatBody(R"("prompt_cache_options":{"mode":"x"})"), "prompt_cache_options.mode");
}

TEST(ChatRequest, C29ToC32OptionsThatAreAccepted) {
  const GenerationRequest r = Chat(
      R"("store":true,"metadata":{"a":"b"},"user":"u","safety_identifier":"s","service_tier":"flex","prompt_cache_key":"k","cache_salt":"s","reasoning_effort":"low",)"
      R"("verbosity":"high","prediction":{"type":"content","content":"x"},"prompt_cache_options":{},"prompt_cache_retention":"24h","parallel_tool_calls":false,)"
      R"("response_format":{"type":"text"},"modalities":["text"])");
  EXPECT_EQ(r.user, "u");
  EXPECT_EQ(r.safety_identifier, "s");
  EXPECT_EQ(r.service_tier, "flex");
  EXPECT_EQ(r.prompt_cache_key, "k");
  EXPECT_EQ(r.prompt_cache_seconds, 86'400);
  EXPECT_EQ(r.cache_salt, "s");
  EXPECT_EQ(r.reasoning_effort, "low");
  EXPECT_EQ(r.verbosity, "high");
  EXPECT_TRUE(r.unknown_fields.empty());
  ExpectRefused(ParseChatRequest, ChatBody(R"("service_tier":"gold")"), "service_tier", "one of");
  ExpectRefused(ParseChatRequest, ChatBody(R"("reasoning_effort":"huge")"), "reasoning_effort", "one of");
  ExpectRefused(ParseChatRequest, ChatBody(R"("metadata":{"a":1})"), "metadata.a");
  ExpectRefused(ParseChatRequest, ChatBody(R"("prediction":{"type":"other"})"), "prediction.type");
  ExpectRefused(ParseChatRequest, ChatBody(R"("prediction":{"type":"content","content":1})"), "prediction.content");
}

TEST(ChatRequest, OwnAndVllmFields) {
  const GenerationRequest r = Chat(
      R"("min_tokens":2,"max_tokens":9,"ignore_eos":true,"stop_token_ids":[1,2],"include_stop_str_in_output":true,"skip_special_tokens":false,)"
      R"("add_special_tokens":true,"priority":-3,"deadline_ms":1500,"prompt_logprobs":3,"min_p":0.1,"top_k":5)");
  EXPECT_EQ(r.min_tokens, 2);
  EXPECT_TRUE(r.ignore_eos);
  EXPECT_THAT(r.stop_token_ids, ElementsAre(1, 2));
  EXPECT_TRUE(r.include_stop_str_in_output);
  EXPECT_FALSE(r.skip_special_tokens);
  EXPECT_EQ(r.add_special_tokens, true);
  EXPECT_EQ(r.priority, -3);
  EXPECT_EQ(r.deadline_ms, 1500);
  EXPECT_EQ(r.prompt_logprobs, 3);
  ExpectRefused(ParseChatRequest, ChatBody(R"("min_tokens":3,"max_tokens":2)"), "min_tokens", "max_tokens");
}

TEST(ChatRequest, T7AndC34KnownFieldsThatAreNotServedAreNamed) {
  const char* cases[][2] = {
      {R"("guided_grammar":"root ::= x")", "guided_grammar"},
      {R"("response_format":{"type":"structural_tag"})", "response_format.type"},
      {R"("structured_outputs":{"json":{},"whitespace_pattern":" "})", "structured_outputs.whitespace_pattern"},
      {R"("grammar":"root ::= x")", "grammar"},
      {R"("tools":[{"type":"function","function":{"name":"f"}}])", "tools"},
      {R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"auto")", "tools"},
      {R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required")", "tools"},
      {R"("functions":[{"name":"f"}])", "functions"},
      {R"("modalities":["text","audio"])", "modalities"},
      {R"("audio":{"voice":"x","format":"wav"})", "audio"},
      {R"("web_search_options":{})", "web_search_options"},
      {R"("moderation":{})", "moderation"},
      {R"("suffix":"x")", "suffix"},
      {R"("use_beam_search":true)", "use_beam_search"},
      {R"("length_penalty":0.5)", "length_penalty"},
      {R"("echo":true)", "echo"},
      {R"("best_of":3)", "best_of"},
      {R"("bad_words":["x"])", "bad_words"},
      {R"("allowed_token_ids":[1])", "allowed_token_ids"},
      {R"("truncate_prompt_tokens":5)", "truncate_prompt_tokens"},
      {R"("return_token_ids":true)", "return_token_ids"},
      {R"("documents":[{"text":"x"}])", "documents"},
      {R"("grammar":"root ::= x")", "grammar"},
      {R"("json_schema":{"type":"object"})", "json_schema"},
      {R"("n_predict":5)", "n_predict"},
      {R"("repeat_penalty":1.1)", "repeat_penalty"},
      {R"("mirostat":2)", "mirostat"},
      {R"("regex":"a")", "regex"},
      {R"("enable_thinking":false)", "enable_thinking"},
      {R"("prompt":"x")", "prompt"},
  };
  for (const auto& c : cases) ExpectRefused(ParseChatRequest, ChatBody(c[0]), c[1], c[1], ErrorCode::kUnsupported);
}

// They were passed over with 200.
TEST(ChatRequest, T7ForeignFieldsAreNamedWithTheFieldToUse) {
  const char* cases[][3] = {
      {R"("lora":[{"id":0,"scale":1}])", "lora", "model name"},
      {R"("n_keep":5)", "n_keep", "refused"},
      {R"("repeat_last_n":64)", "repeat_last_n", "repetition_penalty"},
      {R"("t_max_predict_ms":100)", "t_max_predict_ms", "deadline_ms"},
      {R"("grammar_lazy":true)", "grammar_lazy", ""},
      {R"("max_new_tokens":5)", "max_new_tokens", "use max_tokens"},
      {R"("max_length":5)", "max_length", "use max_tokens"},
      {R"("typical":0.5)", "typical", "top_p"},
      {R"("truncate":100)", "truncate", "shorten the prompt"},
      {R"("do_sample":false)", "do_sample", "temperature 0"},
      {R"("format":"json")", "format", "response_format"},
      {R"("options":{"num_ctx":1})", "options", "top level"},
      {R"("num_predict":5)", "num_predict", "use max_tokens"},
      {R"("think":false)", "think", "enable_thinking"},
      {R"("thinking":{"type":"disabled"})", "thinking", "enable_thinking"},
      {R"("reasoning":{"effort":"low"})", "reasoning", "reasoning_effort"},
      {R"("random_seed":1)", "random_seed", "use seed"},
      {R"("safe_prompt":true)", "safe_prompt", "system message"},
      {R"("stop_sequences":["x"])", "stop_sequences", "use stop"},
      {R"("stop_regex":"x+")", "stop_regex", "use stop"},
      {R"("extra_body":{"top_k":1})", "extra_body", "top level"},
  };
  for (const auto& c : cases) {
    ExpectRefused(ParseChatRequest, ChatBody(c[0]), c[1], c[2], ErrorCode::kUnsupported);
    ExpectRefused(ParseCompletionRequest, CompletionBodyWith(c[0]), c[1], c[2], ErrorCode::kUnsupported);
  }
  EXPECT_TRUE(Chat(R"("do_sample":true,"n_keep":0,"options":{},"extra_body":{},"safe_prompt":false,"lora":[],)"
                   R"("think":null,"stop_sequences":[])")
                  .unknown_fields.empty());
}

TEST(ChatRequest, C10AStopOfAnotherTypeHearsBothThatItMayHave) {
  for (const char* stop : {"5", "true", "{}"}) {
    ExpectRefused(ParseChatRequest, ChatBody(std::string(R"("stop":)") + stop), "stop",
                  "must be a string or an array of strings");
  }
}

TEST(ChatRequest, UnservedFieldsThatAskForNothingPass) {
  const GenerationRequest r = Chat(
      R"("use_beam_search":false,"length_penalty":1.0,"suffix":"","bad_words":[],"allowed_token_ids":[],"echo":false,"best_of":1,"documents":[],)"
      R"("structured_outputs":{},"mirostat":0,"repeat_penalty":1,"cache_prompt":true,"include_reasoning":true,"return_token_ids":false,"n_probs":0)");
  EXPECT_TRUE(r.unknown_fields.empty());
}

TEST(ChatRequest, C16ToolsThatAskForNoCallPass) {
  for (const char* fields :
       {R"("tools":[])", R"("tools":null,"tool_choice":null)", R"("tool_choice":"none")", R"("tool_choice":"auto")",
        R"("tools":[],"tool_choice":"auto")",
        R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none")",
        R"("functions":[],"function_call":"none")", R"("functions":[{"name":"f"}],"function_call":"none")"}) {
    Chat(fields);
  }
  ExpectRefused(ParseChatRequest, ChatBody(R"("tool_choice":"required")"), "tool_choice", "tools");
  ExpectRefused(ParseChatRequest, ChatBody(R"("tools":[],"tool_choice":{"type":"function","function":{"name":"f"}})"),
                "tool_choice", "tools");
  ExpectRefused(ParseChatRequest, ChatBody(R"("tool_choice":"maybe")"), "tool_choice", "none, auto");
  ExpectRefused(ParseChatRequest, ChatBody(R"("tools":{})"), "tools");
  ExpectRefused(ParseChatRequest, ChatBody(R"("tools":["x"],"tool_choice":"none")"), "tools[0]");
  ExpectRefused(ParseChatRequest, ChatBody(R"("response_format":{"type":"yaml"})"), "response_format.type");
  ExpectRefused(ParseChatRequest, ChatBody(R"("response_format":{})"), "response_format.type");
}

TEST(ChatRequest, O41RequestTemplatesAreRefusedInBothPlaces) {
  ExpectRefused(ParseChatRequest, ChatBody(R"("chat_template":"{% for x in range(100000) %}{% endfor %}")"),
                "chat_template", "operator", ErrorCode::kUnsupported);
  ExpectRefused(ParseChatRequest, ChatBody(R"("chat_template_kwargs":{"chat_template":"x"})"),
                "chat_template_kwargs.chat_template", "operator", ErrorCode::kUnsupported);
  ExpectRefused(ParseChatRequest, ChatBody(R"("chat_template_kwargs":{"chat_template":null})"),
                "chat_template_kwargs.chat_template", "", ErrorCode::kUnsupported);
  ExpectRefused(ParseChatRequest, ChatBody(R"("chat_template_kwargs":[])"), "chat_template_kwargs");
  EXPECT_EQ(Chat(R"("chat_template_kwargs":{"enable_thinking":false})").chat_template_kwargs["enable_thinking"], false);
}

TEST(ChatRequest, C7ContinueFinalMessage) {
  const std::string turns = R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}])";
  const GenerationRequest r = Accepted(ParseChatRequest(WithMessages(turns, R"("continue_final_message":true)"), {}));
  EXPECT_TRUE(r.continue_final_message);
  EXPECT_FALSE(r.add_generation_prompt);
  EXPECT_FALSE(
      Accepted(ParseChatRequest(WithMessages(turns, R"("add_generation_prompt":false)"), {})).add_generation_prompt);
  ExpectRefused(ParseChatRequest, WithMessages(turns, R"("continue_final_message":true,"add_generation_prompt":true)"),
                "continue_final_message", "both");
  ExpectRefused(ParseChatRequest, ChatBody(R"("continue_final_message":true)"), "continue_final_message", "assistant");
  ExpectRefused(ParseChatRequest,
                WithMessages(R"([{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f"}}]}])",
                             R"("continue_final_message":true)"),
                "continue_final_message", "tool calls");
}

}  // namespace
}  // namespace headrace
