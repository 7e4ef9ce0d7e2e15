// An executor that computes nothing: tokens, delays and faults come from a Script, or, without replies, tokens are a
// function of (request seed, position, what the KV cache holds before it) and an answer ends after a number of tokens
// drawn the same way. Its KV cache is real: a block holds the tokens that were computed into it, prompts are read from
// there, and so a block that is shared with the wrong request gives another answer. Time passes through a Sleeper, so
// that the simulator runs the same executor on virtual time.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "executor/executor.h"
#include "executor/scripted/script.h"

namespace headrace {

// What stands for keys and values: a hash of the tokens up to a position, from the one before it (0: none).
uint32_t ScriptHistory(uint32_t before, int32_t token);
// Without replies: the token at `position`, from the history of the one before it.
int32_t ScriptDraw(uint64_t seed, uint32_t history, uint64_t position, int32_t letters);

class ScriptedExecutor final : public Executor {
 public:
  using Sleeper = std::function<void(TimeNs)>;
  // Sleeps on the system's clock.
  static Sleeper RealSleeper();

  ScriptedExecutor(Script script, Sleeper sleeper);

  const ExecutorDescription& Describe() const override { return description_; }
  Status Submit(const StepInput& input) override;
  Result<const StepOutput*> Wait() override;
  void ReadBlock(int32_t block, std::span<std::byte> out) const override;
  void WriteBlock(int32_t block, std::span<const std::byte> bytes) override;

 private:
  // Of one position.
  struct KvEntry {
    int32_t token = -1;
    uint32_t history = 0;
  };
  KvEntry& KvAt(const StepInput& input, const StepSpan& span, int64_t position);
  void WriteKv(const StepInput& input, const StepSpan& span);
  const ScriptReply& ReplyTo(const StepInput& input, const StepSpan& span);
  void Answer(const StepInput& input, const StepSample& sample, SampleResult* result, int64_t* delay_us);
  const ScriptReply* Choose(const std::string& prompt) const;
  void AppendText(int32_t token, std::string* out) const;

  const Script script_;
  const Sleeper sleeper_;
  ExecutorDescription description_;
  std::vector<KvEntry> kv_;
  std::unordered_map<uint64_t, const ScriptReply*> replies_;  // of requests that have seen their first token
  const StepInput* input_ = nullptr;
  StepOutput output_;
};

}  // namespace headrace
