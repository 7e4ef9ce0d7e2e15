// An engine over a scripted executor on virtual time, for tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "base/random.h"
#include "engine/engine.h"
#include "executor/scripted/scripted_executor.h"

namespace headrace {

inline std::unique_ptr<Tokenizer> ScriptTokenizer(const Script& script) {
  auto tokenizer = Tokenizer::FromVocabulary(ScriptVocabulary(script));
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return std::move(*tokenizer);
}

struct World {
  explicit World(const std::string& json, EngineOptions options = {.waiting_max = 4, .check_integrity = true})
      : script(*ParseScript(json)),
        executor(script, [this](TimeNs t) { clock.Advance(t); }),
        tokenizer(ScriptTokenizer(script)),
        engine(executor, *tokenizer, clock, options) {
    clock.Set(1);
  }
  std::unique_ptr<EngineRequest> Request(const std::string& prompt) {
    auto r = std::make_unique<EngineRequest>();
    r->prompt.assign(prompt.begin(), prompt.end());
    return r;
  }
  // Steps until nothing is left to do.
  void Run(int steps = 100'000) {
    for (int i = 0; i < steps && engine.Step(clock.Now()) != kNever; ++i) {
    }
  }
  struct Answer {
    std::string text;  // released at the end
    int tokens = 0;
    EndReason finish = EndReason::kNone;
  };
  Answer Read(EngineStream& stream) {
    Answer a;
    std::string all;
    uint32_t released = 0;
    for (TokenEvent e; stream.Pop(e);) {
      EXPECT_EQ(a.finish, EndReason::kNone) << "an event after the finish";
      if (e.token >= 0) {
        ++a.tokens;
        if (!tokenizer->IsControl(e.token)) all += tokenizer->TokenBytes(e.token);
      }
      EXPECT_GE(e.released_bytes, released) << "released text was taken back";
      released = e.released_bytes;
      a.finish = e.finish;
    }
    a.text = all.substr(0, released);
    return a;
  }
  Answer Ask(std::unique_ptr<EngineRequest> request) {
    auto stream = engine.Submit(std::move(request), nullptr);
    EXPECT_TRUE(stream);
    Run();
    return Read(**stream);
  }

  VirtualClock clock;
  Script script;
  ScriptedExecutor executor;
  std::unique_ptr<Tokenizer> tokenizer;
  Engine engine;
};

inline constexpr char kFox[] = R"({"replies": [{"pieces": ["The", " qui", "ck br", "own", " fox"]}]})";

inline std::string Letters(uint64_t seed, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += static_cast<char>('a' + KeyedRandom(seed, i) % 26);
  return text;
}

}  // namespace headrace
