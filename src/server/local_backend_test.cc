// Goal: an answer that fails has said all that was generated before, however late the loop looks; of several all of
// them.
#include "server/local_backend.h"

#include <gtest/gtest.h>

#include <map>

#include "executor/scripted/scripted_executor.h"

namespace headrace {
namespace {

class Listener final : public BackendSink {
 public:
  explicit Listener(EventLoop& loop) : loop_(loop) {}
  void OnDelta(ChoiceDelta delta) override { texts[delta.index] += delta.text; }
  void OnChoiceEnd(int, FinishReason) override { ++ends; }
  void OnEnd(int64_t) override { loop_.Stop(); }
  void OnError(const Error&) override {
    ++errors;
    loop_.Stop();
  }
  std::map<int, std::string> texts;
  int ends = 0, errors = 0;

 private:
  EventLoop& loop_;
};

TEST(LocalBackendTest, WhatWasSaidBeforeAFaultIsHandedOn) {
  const Script script = *ParseScript(R"({"replies": [{"pieces": ["one", " two", " three", " four"], "fault_at": 3}]})");
  VirtualClock clock;
  ScriptedExecutor executor(script, [&](TimeNs t) { clock.Advance(t); });
  const auto tokenizer = *Tokenizer::FromVocabulary(ScriptVocabulary(script));
  Engine engine(executor, *tokenizer, clock, {.waiting_max = 8});
  EventLoop loop;
  LocalBackend backend(loop, engine, *tokenizer);
  PreparedRequest request{.prompts = {{'h', 'i'}}};
  request.api.n = request.api.best_of = 3;
  Listener listener(loop);
  const auto call = backend.Start(request, listener);
  ASSERT_TRUE(call) << call.error().message;
  for (int i = 0; i < 1000 && engine.Step(clock.Now()) != kNever; ++i) {
  }
  loop.Run();  // every event is there by now
  EXPECT_EQ(listener.errors, 1);
  EXPECT_EQ(listener.ends, 0);
  for (int choice = 0; choice < 3; ++choice) EXPECT_EQ(listener.texts[choice], "one two three") << choice;
}

}  // namespace
}  // namespace headrace
