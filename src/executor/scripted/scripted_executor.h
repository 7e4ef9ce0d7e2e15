// An executor that computes nothing: tokens, delays and faults come from a Script, or, without replies, tokens are a
// function of (request seed, position) and an answer ends after a number of tokens drawn the same way. Time passes
// through a Sleeper, so that the simulator runs the same executor on virtual time.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>

#include "base/clock.h"
#include "executor/executor.h"
#include "executor/scripted/script.h"

namespace headrace {

class ScriptedExecutor final : public Executor {
 public:
  using Sleeper = std::function<void(TimeNs)>;
  // Sleeps on the system's clock.
  static Sleeper RealSleeper();

  ScriptedExecutor(Script script, Sleeper sleeper);

  const ExecutorDescription& Describe() const override { return description_; }
  Status Submit(const StepInput& input) override;
  Result<const StepOutput*> Wait() override;

 private:
  // One request that has been seen: the prompt's text so far and the reply it chose.
  struct Conversation {
    std::string prompt;
    const ScriptReply* reply = nullptr;
  };
  void ReadPrompt(const StepInput& input, const StepSpan& span);
  void Answer(const StepInput& input, const StepSample& sample, SampleResult* result, int64_t* delay_us);
  const ScriptReply* Choose(const std::string& prompt) const;
  void AppendText(int32_t token, std::string* out) const;

  const Script script_;
  const Sleeper sleeper_;
  ExecutorDescription description_;
  std::unordered_map<uint64_t, Conversation> conversations_;
  const StepInput* input_ = nullptr;
  StepOutput output_;
};

}  // namespace headrace
