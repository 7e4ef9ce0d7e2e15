// Goal: streams are whole, in order and equal to the answer that is not streamed: characters are never split (O-01),
// stop strings never leak nor lose text (O-02), chunks, usage and [DONE] come as clients expect them (O-03, C24-C28,
// L1-L3), a fault ends a stream with one error event (O-05), and keep-alives stand between events (O-06).
#include <fmt/format.h>

#include "server/test_serve.h"

namespace headrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr char kScript[] = R"({"step_ms": 1, "replies": [
  {"match": "fox",    "pieces": ["The", " quick", " br", "own", " f", "ox"]},
  {"match": "two",    "pieces": ["one", " tw", "o", " three"]},
  {"match": "broken", "pieces": ["one", " two", " three", " four"], "fault_at": 3},
  {"match": "first",  "pieces": ["never"], "fault_at": 0},
  {"match": "slow",   "pieces": ["a", "b"], "delay_ms": 600},
  {"pieces": ["Hello", ",", " wor", "ld", "!"]}]})";

class StreamingTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    served_ = new Served(kScript, [](ServeOptions& o) { o.keep_alive_s = 0.1; });
    served_->Ready();
  }
  static void TearDownTestSuite() { delete std::exchange(served_, nullptr); }
  void TearDown() override { served_->ExpectAlive(); }
  static const Served& S() { return *served_; }

  static Events Stream(const std::string& content, const std::string& fields = "") {
    const auto answer = S().Chat(content, R"("stream":true)" + (fields.empty() ? "" : "," + fields));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return Events(answer.body);
  }
  static Json Whole(const std::string& content, const std::string& fields = "") {
    return Parsed(S().Chat(content, fields).body);
  }

 private:
  static inline Served* served_ = nullptr;
};

// ---- O-01: the API over a script whose tokens are single bytes ------------------------------------------------------

std::string BytesScript(const std::string& text) {
  return R"({"step_ms": 1, "replies": [{"bytes": true, "pieces": [")" + text + "\"]}]}";
}

TEST(Characters, AreNeverSplitAcrossChunks) {
  const std::string text = "🫠🥹龜 ďábel 你好🌍";
  Served server(BytesScript(text));
  server.Ready();
  for (const std::string& path : {std::string("/v1/chat/completions"), std::string("/v1/completions")}) {
    const bool chat = path.find("chat") != std::string::npos;
    const auto body = [&](const std::string& fields) {
      return chat ? ChatText("x", fields) : CompletionText("\"x\"", fields);
    };
    const Events stream(
        server.Post(path, body(R"("max_tokens":200,"stream":true)")).body);  // Events refuses what is not UTF-8
    EXPECT_EQ(stream.Text(), text);
    EXPECT_THAT(stream.Text(), Not(HasSubstr("\uFFFD")));
    const Json whole =
        Parsed(server.Post(path, body(R"("max_tokens":200,"logprobs":)" + std::string(chat ? "true" : "0")))
                   .body)["choices"][0];
    EXPECT_EQ(chat ? whole["message"]["content"] : whole["text"], text);
    if (!chat) continue;
    std::string joined;  // C14: the bytes of the tokens are the text
    for (const Json& token : whole["logprobs"]["content"]) {
      for (const Json& byte : token["bytes"]) joined += static_cast<char>(byte.get<int>());
    }
    EXPECT_EQ(joined, text);
  }
  // C14 in a stream: tokens whose character is not whole yet come with it.
  std::string joined;
  for (const Json& chunk :
       Events(server.Post("/v1/chat/completions", ChatText("x", R"("stream":true,"logprobs":true)")).body).chunks) {
    if (chunk["choices"][0]["logprobs"].is_null()) continue;
    for (const Json& token : chunk["choices"][0]["logprobs"]["content"]) {
      for (const Json& byte : token["bytes"]) joined += static_cast<char>(byte.get<int>());
    }
  }
  EXPECT_EQ(joined, text);
}

TEST(Characters, OneThatIsCutByTheLimitIsReplacedOnce) {
  Served server(BytesScript("a🌍"));
  server.Ready();
  const Events stream(server.Post("/v1/chat/completions", ChatText("x", R"("max_tokens":3,"stream":true)")).body);
  EXPECT_EQ(stream.Text(), "a\uFFFD");
  EXPECT_THAT(stream.Finishes(), ElementsAre("length"));
}

// ---- O-02 ----------------------------------------------------------------------------------------------------------

TEST_F(StreamingTest, StopStrings) {
  struct Case {
    std::string stop, text, finish;
  };
  const Case cases[] = {
      {R"(["own fox"])", "The quick br", "stop"},
      {R"(["own foxes"])", "The quick brown fox", "stop"},
      {R"(["own fox","own"])", "The quick br", "stop"},
      {R"("The")", "", "stop"},
      {R"([" f","quick"])", "The ", "stop"},
      {R"(["x"])", "The quick brown fo", "stop"},
  };
  for (const Case& c : cases) {
    const Events stream = Stream("fox", "\"stop\":" + c.stop);
    EXPECT_EQ(stream.Text(), c.text) << c.stop;
    EXPECT_THAT(stream.Finishes(), ElementsAre(c.finish)) << c.stop;
    const Json whole = Whole("fox", "\"stop\":" + c.stop);
    EXPECT_EQ(whole["choices"][0]["message"]["content"], c.text) << c.stop;
    EXPECT_EQ(whole["choices"][0]["finish_reason"], c.finish) << c.stop;
  }
  EXPECT_EQ(Stream("fox", R"("stop":["own"],"include_stop_str_in_output":true)").Text(), "The quick brown");
}

// ---- O-03, C24-C28 -------------------------------------------------------------------------------------------------

void ExpectWellFormed(const Events& stream, int choices, bool usage, const std::string& finish) {
  EXPECT_EQ(stream.done, 1);
  EXPECT_TRUE(stream.done_last && stream.whole);
  for (int i = 0; i < choices; ++i) EXPECT_THAT(stream.Finishes(i), ElementsAre(finish));
  int usage_chunks = 0;
  for (size_t i = 0; i < stream.chunks.size(); ++i) {
    const Json& chunk = stream.chunks[i];
    EXPECT_EQ(chunk["id"], stream.chunks[0]["id"]);
    EXPECT_EQ(chunk["created"], stream.chunks[0]["created"]);
    EXPECT_TRUE(chunk["choices"].is_array());
    EXPECT_EQ(chunk.contains("usage"), usage);
    if (chunk["choices"].empty()) {
      ++usage_chunks;
      EXPECT_EQ(i, stream.chunks.size() - 1) << "the usage chunk comes last";
      EXPECT_TRUE(chunk["usage"].is_object());
    } else if (usage) {
      EXPECT_TRUE(chunk["usage"].is_null());
    }
  }
  EXPECT_EQ(usage_chunks, usage ? 1 : 0);
}

TEST_F(StreamingTest, ChunksUsageAndDone) {
  for (const int n : {1, 2}) {
    for (const bool natural : {true, false}) {
      for (const std::string& option : {std::string(), std::string(R"(,"stream_options":{"include_usage":false})"),
                                        std::string(R"(,"stream_options":{"include_usage":true})")}) {
        const bool usage = option.find("true") != std::string::npos;
        const std::string plain = "\"n\":" + std::to_string(n) + (natural ? ",\"max_tokens\":50" : ",\"max_tokens\":3");
        const std::string finish = natural ? "stop" : "length";
        const Events chat = Stream("hi", plain + option);
        ExpectWellFormed(chat, n, usage, finish);
        const Events completion(S().Complete("\"hi\"", fmt::format(R"({},"stream":true{})", plain, option)).body);
        ExpectWellFormed(completion, n, usage, finish);
        for (int i = 0; i < n; ++i) {
          EXPECT_EQ(chat.Text(i), natural ? "Hello, world!" : "Hello, wor");
          EXPECT_EQ(completion.Text(i), chat.Text(i));
        }
        if (!usage) continue;
        EXPECT_EQ(chat.chunks.back()["usage"], Whole("hi", plain)["usage"]);
        EXPECT_EQ(completion.chunks.back()["usage"], Parsed(S().Complete("\"hi\"", plain).body)["usage"]);
        EXPECT_EQ(completion.chunks.back()["usage"]["prompt_tokens"], 2) << "the prompt counts once";
        EXPECT_EQ(completion.chunks.back()["usage"]["completion_tokens"], n * (natural ? 5 : 3));
      }
    }
  }
  ExpectError(S().Chat("x", R"("stream_options":{"include_usage":true})"), 400, "invalid_value", "stream_options");
}

// C24, C26, C33, T14
TEST_F(StreamingTest, RoleFirstTextThenFinishAndNothingEmpty) {
  const auto answer = S().Chat("hi", R"("stream":true)");
  EXPECT_THAT(answer.head, HasSubstr("Content-Type: text/event-stream; charset=utf-8"));
  EXPECT_THAT(answer.head, HasSubstr("Cache-Control: no-cache"));
  EXPECT_THAT(answer.head, HasSubstr("X-Accel-Buffering: no"));
  const Events stream(answer.body);
  ASSERT_GE(stream.chunks.size(), 3u);
  EXPECT_EQ(stream.chunks.front()["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(stream.chunks.front()["choices"][0]["delta"]["content"], "");
  EXPECT_EQ(stream.chunks.front()["object"], "chat.completion.chunk");
  for (size_t i = 1; i + 1 < stream.chunks.size(); ++i) {
    EXPECT_NE(stream.chunks[i]["choices"][0]["delta"]["content"], "");
    EXPECT_TRUE(stream.chunks[i]["choices"][0]["finish_reason"].is_null());
  }
  EXPECT_EQ(stream.chunks.back()["choices"][0]["delta"], Json::object());
  const Json whole = Whole("hi");
  for (const char* key : {"id", "object", "created", "model", "choices", "usage", "system_fingerprint"})
    EXPECT_TRUE(whole.contains(key)) << key;
  EXPECT_TRUE(whole["choices"][0]["logprobs"].is_null());
  EXPECT_TRUE(whole["choices"][0]["message"]["refusal"].is_null());
  EXPECT_EQ(whole["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

// C28: the second identical long prompt was cached, also for two choices; with another salt it was not.
TEST_F(StreamingTest, CachedTokensAreTold) {
  const std::string prompt(200, 'w');
  const auto cached = [&](const std::string& fields) {
    return Whole(prompt, fields)["usage"]["prompt_tokens_details"]["cached_tokens"].get<int64_t>();
  };
  EXPECT_EQ(cached(R"("n":2)"), 0) << "the choice that computed it found nothing";
  const int64_t again = cached("");
  EXPECT_GE(again, 192);
  EXPECT_EQ(again % 64, 0);
  EXPECT_EQ(cached(R"("n":2)"), again);
  EXPECT_EQ(cached(R"("cache_salt":"mine")"), 0);
  EXPECT_EQ(cached(R"("cache_salt":"mine")"), again);
}

// L1
TEST_F(StreamingTest, PromptsOfEveryKindInOrder) {
  const Json answer = Parsed(S().Complete(R"(["fox","hi"])", R"("n":2)").body);
  ASSERT_EQ(answer["choices"].size(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(answer["choices"][static_cast<size_t>(i)]["index"], i);
    EXPECT_EQ(answer["choices"][static_cast<size_t>(i)]["text"], i < 2 ? "The quick brown fox" : "Hello, world!");
  }
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(Parsed(S().Complete("[102,111,120]").body)["choices"][0]["text"], "The quick brown fox");
  EXPECT_EQ(Parsed(S().Complete("[[102,111,120],[104]]").body)["choices"][1]["text"], "Hello, world!");
}

// L2, L3
TEST_F(StreamingTest, EchoAndLogprobs) {
  const Json echo = Parsed(S().Complete("\"hi\"", R"("echo":true,"max_tokens":0,"logprobs":1)").body)["choices"][0];
  EXPECT_EQ(echo["text"], "hi");
  EXPECT_EQ(echo["finish_reason"], "length");
  EXPECT_EQ(echo["logprobs"]["tokens"], Parsed(R"(["h","i"])"));
  EXPECT_TRUE(echo["logprobs"]["token_logprobs"][0].is_null());
  EXPECT_TRUE(echo["logprobs"]["token_logprobs"][1].is_number());
  EXPECT_EQ(echo["logprobs"]["text_offset"], Parsed("[0,1]"));
  const Json more = Parsed(S().Complete("\"hi\"", R"("echo":true,"max_tokens":2,"logprobs":2)").body)["choices"][0];
  EXPECT_EQ(more["text"], "hiHello,");
  EXPECT_EQ(more["logprobs"]["text_offset"], Parsed("[0,1,2,7]"));
  EXPECT_EQ(more["logprobs"]["top_logprobs"].size(), 4u);
  const Events stream(S().Complete("\"hi\"", R"("echo":true,"max_tokens":2,"stream":true)").body);
  EXPECT_EQ(stream.Text(), "hiHello,");
  EXPECT_EQ(Parsed(S().Complete("\"hi\"").body)["object"], "text_completion");
}

// ---- O-05 ----------------------------------------------------------------------------------------------------------

TEST_F(StreamingTest, AFaultInAStreamIsOneErrorEventAndAProperEnd) {
  const double failed = std::max(0.0, S().Metric("headrace_requests_total{route=\"chat\",status=\"500\"}"));
  for (const char* fields : {"", R"("n":3)"}) {
    const Events stream = Stream("broken", fields);  // ReadAnswer returned: the body was terminated
    ASSERT_FALSE(stream.chunks.empty());
    EXPECT_EQ(stream.done, 0);
    EXPECT_TRUE(stream.whole);
    EXPECT_TRUE(stream.Finishes().empty());
    int errors = 0;
    for (const Json& chunk : stream.chunks) errors += chunk.contains("error") ? 1 : 0;
    EXPECT_EQ(errors, 1);
    EXPECT_TRUE(stream.chunks.back()["error"]["message"].is_string()) << "the error comes last";
    EXPECT_EQ(stream.Text(), "one two three");
  }
  EXPECT_EQ(S().Chat("broken").status, 500) << "a whole answer fails whole";
  EXPECT_EQ(S().Chat("first", R"("stream":true)").status, 500) << "before the first token the status still can say it";
  EXPECT_EQ(S().Metric("headrace_requests_total{route=\"chat\",status=\"500\"}"), failed + 4);
  EXPECT_THAT(S().Chat("broken").body, Not(HasSubstr("executor"))) << "the log says more, the client learns no details";
}

// The end of one answer and the bell of another meet: nothing may follow the last event.
TEST_F(StreamingTest, ManyFaultsAndEndsAtOnce) {
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 24; ++i) {
    clients.push_back(std::make_unique<RawClient>(S().port));
    clients.back()->Send(
        RequestText("POST", "/v1/chat/completions",
                    ChatText(i % 2 == 0 ? "broken" : "hi", i % 3 == 0 ? R"("n":2)" : R"("stream":true)")));
  }
  for (int i = 0; i < 24; ++i) {
    const auto answer = clients[static_cast<size_t>(i)]->ReadAnswer();
    const bool broken = i % 2 == 0, streamed = i % 3 != 0;
    // A stream whose fault is read together with its first token has sent nothing yet: its error may still be a status.
    EXPECT_TRUE(answer.status == (broken && !streamed ? 500 : 200) || (broken && streamed && answer.status == 500))
        << answer.status;
    if (i % 3 != 0 && i % 2 == 1) EXPECT_EQ(Events(answer.body).Text(), "Hello, world!");
  }
}

// ---- O-06 ----------------------------------------------------------------------------------------------------------

TEST_F(StreamingTest, KeepAliveCommentsStandBetweenEvents) {
  const Events stream = Stream("slow");
  EXPECT_GE(stream.comments, 3);
  EXPECT_EQ(stream.Text(), "ab");
  EXPECT_EQ(stream.done, 1);
  EXPECT_EQ(S().Chat("slow").body.find(": ping"), std::string::npos) << "a whole answer has none";
}

}  // namespace
}  // namespace headrace
