// Goal: the server's life with its clients and its operator: whoever leaves, however they leave, frees their slot and
// harms no neighbour (O-04, T12); a drain lets streams end and refuses the rest (O-53); while the model loads the
// server says so and nothing else, and a failed load or a taken port ends it with the cause (O-54); waiting and running
// have their limits; health follows the engine.
#include "server/test_serve.h"

#include <spdlog/sinks/ostream_sink.h>

#include <random>
#include <sstream>

#include "base/file.h"
#include "server/model_service.h"

namespace headrace {
namespace {

using testing::HasSubstr;

constexpr char kLongScript[] = R"({"step_ms": 2, "sequences_max": 8, "kv_blocks": 64, "replies": [
  {"match": "long", "pieces": ["The ", "quick ", "brown ", "fox "], "repeat": 50},
  {"match": "short", "pieces": ["The ", "quick ", "brown ", "fox "], "repeat": 5},
  {"match": "hang", "pieces": ["a", "b"], "delay_ms": 1500},
  {"pieces": ["Hello", "!"]}]})";

std::string Streamed(const std::string& content, const std::string& fields = "") {
  return RequestText("POST", "/v1/chat/completions",
                     ChatText(content, "\"stream\":true" + (fields.empty() ? "" : "," + fields)));
}
std::string Whole(const std::string& content) { return RequestText("POST", "/v1/chat/completions", ChatText(content)); }

// ---- O-04 ----------------------------------------------------------------------------------------------------------

enum class Leave { kReset, kClose, kHalfClose };

TEST(Disconnects, FreeTheSlotAndHarmNoNeighbour) {
  Served served(kLongScript);
  served.Ready();
  const std::string solo = Parsed(served.Chat("short").body)["choices"][0]["message"]["content"];
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::unique_ptr<RawClient>> leavers, survivors;
    for (int i = 0; i < 4; ++i) {
      leavers.push_back(std::make_unique<RawClient>(served.port));
      leavers.back()->Send(i % 2 == 0 ? Streamed("long") : Whole("long"));
      survivors.push_back(std::make_unique<RawClient>(served.port));
      survivors.back()->Send(i % 2 == 0 ? Streamed("short") : Whole("short"));
    }
    // In the queue, in prefill or in decode: some leave at once, some after the first events.
    for (int i = 0; i < 4; ++i) {
      RawClient& client = *leavers[static_cast<size_t>(i)];
      if (i % 2 == 0 && random() % 2 == 0) client.ReadUntil("quick");
      switch (static_cast<Leave>(random() % 3)) {
        case Leave::kReset:
          client.Reset();
          break;
        case Leave::kClose:
          client.Close();
          break;
        case Leave::kHalfClose:
          client.HalfClose();
          break;
      }
    }
    for (int i = 0; i < 4; ++i) {
      const auto answer = survivors[static_cast<size_t>(i)]->ReadAnswer();
      ASSERT_EQ(answer.status, 200);
      ASSERT_EQ(i % 2 == 0 ? Events(answer.body).Text()
                           : Parsed(answer.body)["choices"][0]["message"]["content"].get<std::string>(),
                solo)
          << "round " << round;
    }
    ASSERT_TRUE(served.Await([&] { return served.Idle(); }, 2)) << "round " << round;
  }
  EXPECT_GT(served.Metric("headrace_sequences_finished_total{reason=\"cancelled\"}"), 0);
  served.ExpectAlive();
}

// The step never waits for a reader: the engine is done while the client has read nothing, and others are served.
TEST(Disconnects, AStalledReaderHoldsNoSlot) {
  Served served(kLongScript);
  served.Ready();
  RawClient stalled(served.port, 4096);
  stalled.Send(Streamed("long", R"("n":8,"logprobs":true,"top_logprobs":20)"));
  EXPECT_TRUE(served.Await([&] { return served.Metric("headrace_sequences_finished_total{reason=\"stop\"}") >= 8; }));
  EXPECT_EQ(served.Metric("headrace_kv_blocks_used"), 0);
  served.ExpectAlive();
  EXPECT_EQ(Events(stalled.ReadAnswer().body).done, 1) << "and whoever reads late still gets everything";
}

// ---- limits of waiting and running ---------------------------------------------------------------------------------

TEST(Limits, AFullServerRefusesWithATimeToRetry) {
  Served served(
      R"({"step_ms": 2, "sequences_max": 1, "replies": [{"match": "long", "pieces": ["a"], "repeat": 500}, {"pieces": ["Hello"]}]})",
      [](ServeOptions& o) { o.max_waiting = 1; });
  served.Ready();
  RawClient running(served.port), waiting(served.port);
  running.Send(Streamed("long"));
  running.ReadUntil("\"a\"");
  waiting.Send(Streamed("long"));
  EXPECT_TRUE(served.Await([&] { return served.Metric("headrace_sequences_waiting") == 1; }));
  const auto refused = served.Chat("x");
  ExpectError(refused, 503, "overloaded");
  EXPECT_THAT(refused.head, HasSubstr("retry-after-ms: "));
  EXPECT_THAT(refused.head, HasSubstr("retry-after: "));
  ExpectError(served.Chat("x", R"("n":2,"stream":true)"), 503, "overloaded");
  running.Reset();
  waiting.Reset();
  EXPECT_TRUE(served.Await([&] { return served.Idle(); }, 2));
  served.ExpectAlive();
}

// Those who may wait cannot take every connection.
TEST(Limits, ALongLineLeavesConnectionsToOthers) {
  if (RaiseOpenFilesLimit() < 4096) GTEST_SKIP() << "the system allows too few sockets";
  Served served(kLongScript, [](ServeOptions& o) { o.max_waiting = 800; });
  served.Ready();
  std::vector<std::unique_ptr<RawClient>> waiting;
  for (int i = 0; i < 1200; ++i) {
    waiting.push_back(std::make_unique<RawClient>(served.port));
    waiting.back()->Send("GET /heal");  // accepted, and never whole
  }
  served.ExpectAlive();
}

TEST(Limits, TimesOfQueueRequestAndDeadline) {
  Served served(
      R"({"step_ms": 2, "sequences_max": 1, "replies": [{"match": "long", "pieces": ["a"], "repeat": 3000}, {"pieces": ["Hello"]}]})",
      [](ServeOptions& o) {
        o.queue_timeout_s = 0.2;
        o.request_timeout_s = 3;
      });
  served.Ready();
  RawClient running(served.port);
  running.Send(Streamed("long"));
  running.ReadUntil("\"a\"");
  const auto waited = served.Chat("x");
  ExpectError(waited, 503, "overloaded", "", "waited longer");
  EXPECT_THAT(waited.head, HasSubstr("retry-after-ms: "));
  EXPECT_THAT(
      running.ReadUntil("0\r\n\r\n"),
      testing::AllOf(HasSubstr("deadline_exceeded"), HasSubstr("longer than 3 s"), HasSubstr("--request-timeout")))
      << "an error event, and the body ends properly";
  EXPECT_TRUE(served.Await([&] { return served.Idle(); }, 2));
  ExpectError(served.Chat("long", R"("deadline_ms":100)"), 504, "deadline_exceeded", "deadline_ms",
              "'deadline_ms' of 100");
  const std::string body = R"({"messages":[{"role":"user","content":"long"}],"model":"m","deadline_ms":60000})";
  for (const char* header : {"100", " 100"}) {
    ExpectError(served.Post("/v1/chat/completions", body, std::string("X-Request-Deadline-Ms: ") + header + "\r\n"),
                504, "deadline_exceeded", "X-Request-Deadline-Ms", "'X-Request-Deadline-Ms' of 100");
  }
  for (const char* header : {"0", "-1", "1.5", "soon", "99999999999999999999"}) {
    ExpectError(served.Post("/v1/chat/completions", body, std::string("X-Request-Deadline-Ms: ") + header + "\r\n"),
                400, "invalid_value", "X-Request-Deadline-Ms", "whole number of milliseconds");
  }
  served.ExpectAlive();
}

// ---- the log -------------------------------------------------------------------------------------------------------

TEST(AccessLog, OneLineARequestThatNothingInItCanForge) {
  Served served(kLongScript);
  served.Ready();
  std::ostringstream log;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
  served.Chat("a secret prompt", R"("user":"a secret user")");
  served.Post("/v1/chat/completions",
              R"({"model":"x\n[info] request id=forged","messages":[{"role":"user","content":"y"}]})");
  served.Post("/v1/chat/completions", R"({"model":"x status=200 error=-","messages":[{"role":"user","content":"y"}]})");
  served.Get("/%0a[info]%20forged?secret=1");
  served.Post("/tokenize", "{\"prompt\":\"a secret text\"}", "X-Request-Id: tok-1\r\n");
  served.Get("/health");  // probes are not logged
  RawClient gone(served.port);
  gone.Send(Streamed("long"));
  gone.ReadUntil("fox");
  gone.Reset();
  EXPECT_TRUE(served.Await([&] { return served.Idle(); }, 2));
  served.Stop();
  spdlog::set_default_logger(before);
  spdlog::set_level(spdlog::level::off);
  std::istringstream lines(log.str());
  std::vector<std::string> requests;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(line.starts_with("[20")) << "a forged line: " << line;
    if (line.find("request id=") != std::string::npos) requests.push_back(line);
    EXPECT_THAT(line, testing::Not(HasSubstr("secret")));
  }
  ASSERT_EQ(requests.size(), 6u) << log.str();
  EXPECT_THAT(requests[0],
              testing::AllOf(HasSubstr("route=chat"), HasSubstr("status=200"), HasSubstr("completion_tokens=2")));
  EXPECT_THAT(requests[1], HasSubstr("status=404"));
  EXPECT_THAT(requests[2], HasSubstr(R"(model="x status=200 error=-" status=404)"));
  EXPECT_THAT(requests[3], testing::AllOf(HasSubstr("route=refused"), HasSubstr("status=404")));
  EXPECT_THAT(requests[4], testing::AllOf(HasSubstr("id=tok-1"), HasSubstr("route=/tokenize")));
  EXPECT_THAT(requests[5], HasSubstr("status=499"));
}

// ---- health --------------------------------------------------------------------------------------------------------

TEST(Health, FollowsTheEnginesProgress) {
  Served served(kLongScript, [](ServeOptions& o) { o.stalled_after_s = 0.3; });
  served.Ready();
  RawClient client(served.port);
  client.Send(Whole("hang"));
  EXPECT_TRUE(served.Await([&] { return served.Get("/health").status == 503; })) << "no step for 0.3 s with work to do";
  EXPECT_EQ(client.ReadAnswer().status, 200);
  EXPECT_TRUE(served.Await([&] { return served.Get("/health").status == 200; }));
  served.ExpectAlive();
}

// An engine that slept has not been stuck: the first request after a pause must not make the server look broken.
TEST(Health, APauseIsNoStall) {
  Served served(R"({"step_ms": 50, "replies": [{"pieces": ["a"], "repeat": 4}]})",
                [](ServeOptions& o) { o.stalled_after_s = 1.5; });
  served.Ready();
  const auto resume = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  EXPECT_TRUE(served.Await([&] { return std::chrono::steady_clock::now() > resume; }));
  RawClient client(served.port);
  client.Send(Whole("x"));
  EXPECT_TRUE(served.Await([&] {
    EXPECT_EQ(served.Get("/health").status, 200);
    return client.Readable(0);
  }));
}

// ---- O-53 ----------------------------------------------------------------------------------------------------------

TEST(Drain, StreamsRunToTheirEndAndNewCallsAreRefused) {
  Served served(kLongScript);
  served.Ready();
  std::vector<std::unique_ptr<RawClient>> streams;
  for (int i = 0; i < 5; ++i) {
    streams.push_back(std::make_unique<RawClient>(served.port));
    streams.back()->Send(Streamed("long"));
    streams.back()->ReadUntil("fox");
  }
  RawClient ready(served.port), chat(served.port), tokenize(served.port);  // connected before the signal
  EXPECT_EQ(ready.Ask(RequestText("GET", "/ready", "")).status, 200);
  EXPECT_EQ(chat.Ask(RequestText("GET", "/health", "")).status, 200);
  EXPECT_EQ(tokenize.Ask(RequestText("GET", "/health", "")).status, 200);
  served.Signal();
  EXPECT_TRUE(served.Await([&] { return !RawClient(served.port).connected(); })) << "no new connections";
  const auto not_ready = ready.Ask(RequestText("GET", "/ready", ""));
  EXPECT_EQ(not_ready.status, 503);
  EXPECT_EQ(Parsed(not_ready.body)["status"], "draining");
  const auto refused = chat.Ask(Whole("x"));
  ExpectError(refused, 503, "unavailable", "", "shutting down");
  EXPECT_THAT(refused.head, HasSubstr("retry-after: "));
  ExpectError(tokenize.Ask(RequestText("POST", "/tokenize", R"({"prompt":"x"})")), 503, "unavailable");
  for (const auto& stream : streams) {
    const std::string rest = stream->ReadUntil("data: [DONE]");
    EXPECT_THAT(rest, HasSubstr("\"finish_reason\":\"stop\""));
  }
  EXPECT_EQ(served.Join(), 0);
}

TEST(Drain, WhatDoesNotEndInTimeEndsWithAnError) {
  Served served(R"({"step_ms": 5, "replies": [{"pieces": ["a"], "repeat": 4000}]})",
                [](ServeOptions& o) { o.drain_timeout_s = 0.3; });
  served.Ready();
  RawClient stream(served.port);
  stream.Send(Streamed("x"));
  stream.ReadUntil("\"a\"");
  served.Signal();
  const std::string rest = stream.ReadUntil("0\r\n\r\n");
  EXPECT_THAT(rest, HasSubstr("{\"error\":{\"message\":\"The server was shut down"));
  EXPECT_THAT(rest, testing::Not(HasSubstr("[DONE]")));
  EXPECT_EQ(served.Join(), kExitFailure);
}

// It cut the stream off without an event, and the log blamed the client (499).
TEST(Drain, ASecondSignalEndsEveryAnswerWithAnErrorOfTheServer) {
  Served served(R"({"step_ms": 5, "replies": [{"pieces": ["a"], "repeat": 4000}]})");
  served.Ready();
  std::ostringstream log;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
  RawClient stream(served.port), whole(served.port);
  whole.Send(Whole("x"));
  stream.Send(Streamed("x"));
  stream.ReadUntil("\"a\"");
  served.Signal();
  EXPECT_TRUE(served.Await([&] { return !RawClient(served.port).connected(); }));
  const auto begin = std::chrono::steady_clock::now();
  served.Signal();
  const std::string rest = stream.ReadUntil("0\r\n\r\n");
  EXPECT_THAT(rest, HasSubstr("{\"error\":{\"message\":\"The server was shut down"));
  EXPECT_THAT(rest, testing::Not(HasSubstr("[DONE]")));
  ExpectError(whole.ReadAnswer(), 503, "unavailable", "", "shut down");
  EXPECT_EQ(served.Join(), kExitFailure);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  spdlog::set_default_logger(before);
  spdlog::set_level(spdlog::level::off);
  EXPECT_THAT(log.str(), HasSubstr("status=503 error=unavailable"));
  EXPECT_THAT(log.str(), testing::Not(HasSubstr("status=499")));
}

// ---- O-54 ----------------------------------------------------------------------------------------------------------

TEST(Start, LiveAtOnceReadyOnlyWhenAChatSucceeds) {
  Served served(R"({"load_ms": 700, "step_ms": 1, "replies": [{"pieces": ["Hello"]}]})");
  EXPECT_EQ(served.Get("/health").status, 200);
  EXPECT_EQ(Parsed(served.Get("/health").body)["status"], "loading model");
  const Json models = Parsed(served.Get("/v1/models").body);
  EXPECT_EQ(models["data"][0]["status"], "loading");
  EXPECT_TRUE(models["data"][0]["max_model_len"].is_null());
  const auto early = served.Chat("x");
  ExpectError(early, 503, "unavailable", "", "loading");
  EXPECT_THAT(early.head, HasSubstr("retry-after: "));
  ExpectError(served.Post("/tokenize", R"({"prompt":"x"})"), 503, "unavailable");
  int not_ready = 0;
  EXPECT_TRUE(served.Await([&] {
    const auto ready = served.Get("/ready");
    if (ready.status == 200) return true;
    EXPECT_EQ(ready.status, 503);
    EXPECT_THAT(ready.head, HasSubstr("Retry-After: "));
    ++not_ready;
    return false;
  }));
  EXPECT_GT(not_ready, 0);
  EXPECT_EQ(served.Chat("x").status, 200);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(served.Get("/ready").status, 200) << "no flapping";
  EXPECT_EQ(Parsed(served.Get("/v1/models").body)["data"][0]["status"], "loaded");
}

TEST(Start, TheModelsSamplingDefaultsArePartOfThePlan) {
  EXPECT_EQ(SamplingPlan({}), "");
  EXPECT_EQ(SamplingPlan({.temperature = 0.6, .top_p = 0.95, .top_k = 20}),
            "sampling defaults of the model: temperature 0.6, top_p 0.95, top_k 20");
}

TEST(Start, AFailedLoadEndsTheProcessWithTheCause) {
  const auto fails = [](const Served::Tweak& tweak, const char* cause, ExitCode code = kExitNotFound) {
    testing::internal::CaptureStderr();
    Served served(kPlainScript, tweak);
    EXPECT_EQ(served.Join(), code) << cause;
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(cause));
  };
  fails([](ServeOptions& o) { o.model = "script:/nonexistent/m.json"; }, "m.json");
  fails([](ServeOptions& o) { o.model = "/nonexistent/model.gguf"; }, "model.gguf");
  fails([](ServeOptions& o) { std::ofstream(o.model.substr(7)) << "{\"replies\": 3}"; }, "replies", kExitUsage);
  fails([](ServeOptions& o) { o.chat_template_file = "/nonexistent/t.jinja"; }, "t.jinja");
  const Served first;
  fails([&](ServeOptions& o) { o.port = first.port; }, "in use", kExitCannotServe);
  fails([](ServeOptions& o) { o.tls_cert = o.tls_key = "/nonexistent/tls.pem"; }, "tls.pem");
}

}  // namespace
}  // namespace headrace
