// For the tests of this room: `serve` as it is, on its own thread and a free port, with a script for a model, and a
// client that speaks to it. Every blocking call gives up after kPatienceSeconds (net/test_server.h).
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "base/exit_code.h"
#include "base/log.h"
#include "json/json.h"
#include "net/test_server.h"
#include "server/serve.h"

namespace headrace {

// A reply of 16 tokens to everything, 1 ms a step.
constexpr char kPlainScript[] = R"({"step_ms": 1, "replies": [{"pieces": ["a", "b", "c", "d"], "repeat": 4}]})";

inline std::string RequestText(std::string_view method, std::string_view target, std::string_view body,
                               std::string_view more = "") {
  std::string out =
      std::string(method) + " " + std::string(target) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(more);
  if (method == "POST") {
    if (more.find("Content-Type") == std::string_view::npos) out += "Content-Type: application/json\r\n";
    out += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  }
  return out + "\r\n" + std::string(body);
}
inline std::string ChatText(const std::string& content, const std::string& fields = "") {
  return R"({"model":"m","messages":[{"role":"user","content":")" + content + "\"}]" +
         (fields.empty() ? "" : "," + fields) + "}";
}
inline std::string CompletionText(const std::string& prompt_json, const std::string& fields = "") {
  return R"({"model":"m","prompt":)" + prompt_json + (fields.empty() ? "" : "," + fields) + "}";
}

inline Json Parsed(const std::string& body) {
  auto json = ParseJson(body, {});
  EXPECT_TRUE(json.has_value()) << body.substr(0, 300);
  return json ? std::move(*json) : Json();
}

// The events of a stream, in order.
struct Events {
  explicit Events(const std::string& body) {
    size_t at = 0;
    for (size_t end; (end = body.find("\n\n", at)) != std::string::npos; at = end + 2) {
      const std::string event = body.substr(at, end - at);
      if (event.starts_with(":")) {
        ++comments;
      } else if (event == "data: [DONE]") {
        ++done;
        done_last = true;
        continue;
      } else {
        EXPECT_TRUE(event.starts_with("data: ")) << event;
        chunks.push_back(Parsed(event.substr(6)));
      }
      done_last = false;
    }
    whole = at == body.size();
  }
  // The joined text of a choice, of chat or completions.
  std::string Text(int index = 0) const {
    std::string out;
    for (const Json& chunk : chunks) {
      if (!chunk.contains("choices")) continue;
      for (const Json& choice : chunk["choices"]) {
        if (choice["index"] != index) continue;
        if (choice.contains("text")) out += choice["text"].get<std::string>();
        if (choice.contains("delta")) out += choice["delta"].value("content", "");
      }
    }
    return out;
  }
  std::vector<std::string> Finishes(int index = 0) const {
    std::vector<std::string> out;
    for (const Json& chunk : chunks) {
      if (!chunk.contains("choices")) continue;
      for (const Json& choice : chunk["choices"]) {
        if (choice["index"] == index && choice["finish_reason"].is_string()) out.push_back(choice["finish_reason"]);
      }
    }
    return out;
  }
  std::vector<Json> chunks;  // all but [DONE]
  int done = 0, comments = 0;
  bool done_last = false;
  bool whole = false;  // nothing is left behind the last event
};

class Served {
 public:
  using Answer = RawClient::Answer;
  using Tweak = std::function<void(ServeOptions&)>;

  explicit Served(const std::string& script = kPlainScript, const Tweak& tweak = {}) {
    spdlog::set_level(spdlog::level::off);
    folder_ = std::filesystem::temp_directory_path() /
              ("headrace_serve_" + std::to_string(getpid()) + "_" + std::to_string(++made_));
    std::filesystem::create_directories(folder_);
    const std::string file = File("m.json", script);
    ServeOptions options;
    options.model = "script:" + file;
    options.port = 0;
    options.quiet = options.embedded = true;
    if (tweak) tweak(options);
    auto listening = std::make_shared<std::promise<uint16_t>>();
    auto listens = std::make_shared<std::atomic<bool>>(false);
    options.on_listening = [listening, listens](uint16_t port) {
      *listens = true;
      listening->set_value(port);
    };
    auto bound = listening->get_future();
    ended_ = std::async(std::launch::async, [options, listening, listens] {
      const int code = RunServe(options);
      if (!*listens) listening->set_value(0);
      return code;
    });
    port = bound.get();
  }
  ~Served() {
    if (ended_.valid()) Stop();
    std::filesystem::remove_all(folder_);
  }

  std::string File(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  }
  void Signal() const { kill(getpid(), SIGTERM); }
  // The exit code; ends by itself or by a signal.
  int Join() { return ended_.get(); }
  int Stop() {
    if (ended_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) Signal();
    return Join();
  }

  Answer Ask(std::string_view method, std::string_view target, std::string_view body = "",
             std::string_view more = "") const {
    RawClient client(port);
    client.Send(RequestText(method, target, body, more));
    Answer answer = client.ReadAnswer(method != "HEAD" && method != "OPTIONS");
    EXPECT_THAT(answer.head, testing::HasSubstr("X-Request-Id: ")) << method << " " << target << " " << answer.body;
    return answer;
  }
  Answer Get(std::string_view target, std::string_view more = "") const { return Ask("GET", target, "", more); }
  Answer Post(std::string_view target, std::string_view body, std::string_view more = "") const {
    return Ask("POST", target, body, more);
  }
  Answer Chat(const std::string& content, const std::string& fields = "") const {
    return Post("/v1/chat/completions", ChatText(content, fields));
  }
  Answer Complete(const std::string& prompt_json, const std::string& fields = "") const {
    return Post("/v1/completions", CompletionText(prompt_json, fields));
  }

  bool Await(const std::function<bool()>& done, int seconds = kPatienceSeconds) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (!done()) {
      if (std::chrono::steady_clock::now() > end) return false;
    }
    return true;
  }
  Served& Ready() {
    EXPECT_TRUE(Await([&] { return Get("/ready").status == 200; }));
    return *this;
  }
  double Metric(const std::string& name) const {
    const std::string text = "\n" + Get("/metrics").body;
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
  }
  bool Idle() const {
    return Metric("headrace_requests_under_way") == 0 && Metric("headrace_sequences_running") == 0 &&
           Metric("headrace_sequences_waiting") == 0 && Metric("headrace_kv_blocks_used") == 0;
  }
  // ALIVE: a plain request works within 5 s, and everything is free again within 2 s.
  void ExpectAlive() const {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(Chat("hi", R"("max_tokens":8)").status, 200);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
    EXPECT_TRUE(Await([&] { return Idle(); }, 2)) << "slots or KV blocks are still held";
  }

  uint16_t port = 0;

 private:
  static inline int made_ = 0;
  std::filesystem::path folder_;
  std::future<int> ended_;
};

// An error answer: status, and the four keys of the body.
inline void ExpectError(const Served::Answer& answer, int status, const std::string& code,
                        const std::string& param = "", const std::string& message = "") {
  EXPECT_EQ(answer.status, status) << answer.body.substr(0, 500);
  const Json error = Parsed(answer.body).value("error", Json::object());
  for (const char* key : {"message", "type", "param", "code"})
    EXPECT_TRUE(error.contains(key)) << key << ": " << answer.body.substr(0, 500);
  EXPECT_EQ(error.value("code", Json()), code.empty() ? Json() : Json(code)) << answer.body.substr(0, 500);
  if (!param.empty()) EXPECT_EQ(error.value("param", Json()), Json(param)) << answer.body.substr(0, 500);
  EXPECT_THAT(error.value("message", ""), testing::HasSubstr(message));
  EXPECT_THAT(answer.body, testing::Not(testing::HasSubstr("/tmp/"))) << "a path of this machine";
}

}  // namespace headrace
