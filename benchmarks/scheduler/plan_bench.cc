// Time of one step's planning: Plan with its allocations, then Advance and Publish of what was planned, in a steady
// state of so many running sequences whose prompts share text, with a thousand waiting and a pool too small for all, so
// that blocks are adopted, evicted and preempted all the while. The executor takes no time.
//   ./dev bench scheduler [--benchmark_filter=...]
// Printed: the mean step, the slowest one in a hundred, how many run and how many were preempted.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "kv_cache/block_chain.h"
#include "scheduler/scheduler.h"

namespace headrace {
namespace {

constexpr int64_t kPromptTokens = 1500, kAnswerTokens = 300, kMaxTokens = 4096;
constexpr BlockKey kKey{3, 4};

// What a sequence is about. The chain refers to the tokens, so it does not move.
struct Text {
  explicit Text(std::vector<int32_t> prompt) : tokens(std::move(prompt)) {
    tokens.reserve(kPromptTokens + kMaxTokens);
    chain = std::make_unique<BlockChain>(kKey, BlockName{1, 2}, tokens, kPromptTokens + kMaxTokens);
  }
  std::vector<int32_t> tokens;
  std::unique_ptr<BlockChain> chain;
};

class Server {
 public:
  explicit Server(int32_t running)
      : scheduler_({.context = 8192,
                    .batch_tokens_max = 2048,
                    .logit_rows_max = running,
                    .sequences_max = running,
                    .waiting_max = 1024,
                    .prefix_cache = true},
                   static_cast<int32_t>(running * BlocksFor(kPromptTokens + kAnswerTokens) * 8 / 10)),
        texts_(static_cast<size_t>(running + 1024)) {
    scheduler_.ReservePlan(&plan_);
    while (scheduler_.waiting() < 1000) Arrive();
  }

  // Returns the microseconds that planning took.
  double Step() {
    const auto begin = std::chrono::steady_clock::now();
    scheduler_.Plan(&plan_);
    for (const PlannedSpan& span : plan_.spans) {
      scheduler_.Advance(span, span.samples);
      if (span.samples) texts_[static_cast<size_t>(span.slot)]->tokens.push_back(7);
      scheduler_.Publish(span.slot);
    }
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
    for (const PlannedSpan& span : plan_.spans) {
      if (!span.samples || random_.Below(kAnswerTokens) != 0) continue;
      scheduler_.Remove(span.slot);
      Arrive();
    }
    return time.count();
  }
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  // A third of a prompt is one of sixteen texts.
  void Arrive() {
    ++number_;
    const uint64_t family = random_.Below(16);
    std::vector<int32_t> prompt;
    for (uint64_t i = 0; i < kPromptTokens; ++i)
      prompt.push_back(static_cast<int32_t>(KeyedRandom(i < 500 ? family : 100 + number_, i) % 5000));
    auto text = std::make_unique<Text>(std::move(prompt));
    const auto slot =
        scheduler_.Add({.prompt_tokens = kPromptTokens,
                        .max_tokens = kMaxTokens,
                        .place = {.tenant = 1 + random_.Below(20), .arrival = static_cast<TimeNs>(number_) * kNsPerMs},
                        .chain = text->chain.get()});
    CHECK(slot.has_value());
    texts_[static_cast<size_t>(*slot)] = std::move(text);
  }

  Scheduler scheduler_;
  std::vector<std::unique_ptr<Text>> texts_;
  BatchPlan plan_;
  Random random_{1};
  uint64_t number_ = 0;
};

void BM_Plan(benchmark::State& state) {
  Server server(static_cast<int32_t>(state.range(0)));
  for (int i = 0; i < 2000; ++i) server.Step();
  std::vector<double> times;
  for (auto _ : state) {
    times.push_back(server.Step());
    state.SetIterationTime(times.back() * 1e-6);
  }
  std::sort(times.begin(), times.end());
  state.counters["p99_us"] = times[times.size() * 99 / 100];
  state.counters["running"] = server.scheduler().running();
  state.counters["preemptions"] = static_cast<double>(server.scheduler().preemptions());
}
BENCHMARK(BM_Plan)->Arg(64)->Arg(256)->UseManualTime()->Unit(benchmark::kMicrosecond)->Iterations(5000);

}  // namespace
}  // namespace headrace

BENCHMARK_MAIN();
