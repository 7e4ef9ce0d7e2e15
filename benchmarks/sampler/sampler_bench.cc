// Time of one row's sample, by setting, vocabulary and number of threads:
//   ./dev bench sampler [--benchmark_filter=...]
// Each iteration also copies the row, as Forward would write it; CopyRow is that alone.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "base/random.h"
#include "sampling/sampler.h"

namespace headrace {
namespace {

const std::vector<int64_t> kVocabularies = {49'152, 262'144};  // SmolLM2's, Gemma's

// Peaked: a few likely tokens over a long tail, as a model's rows. Flat: all within one.
std::vector<float> RowOf(bool flat, int32_t n) {
  Random random(5);
  std::vector<float> row(static_cast<size_t>(n));
  for (float& x : row) {
    const double u = random.Uniform();
    x = static_cast<float>(flat ? u : -std::log(u + 1e-9) * 1.7 - 12 + 4 * random.Uniform());
  }
  return row;
}

std::vector<TokenAdjustment> Penalties(int32_t n) {
  Random random(6);
  std::vector<TokenAdjustment> out;
  for (int32_t token = 0; token < n && out.size() < 1000; token += 1 + static_cast<int32_t>(random.Below(80)))
    out.push_back({token, 0, static_cast<int32_t>(random.Below(3)), true});
  return out;
}

struct Setting {
  const char* name;
  SamplingParams params;
  bool flat = false;
  int32_t top_logprobs = -1;
};
const SamplingParams kPenalised{.top_p = 0.95f, .min_p = 0.02f, .presence_penalty = 0.5f, .repetition_penalty = 1.1f};
const Setting kSettings[] = {
    {"greedy", {.temperature = 0}},
    {"greedy, 20 logprobs", {.temperature = 0}, false, 20},
    {"temperature", {.temperature = 0.8f}},
    {"top_k 40", {.top_k = 40}},
    {"top_k 40, top_p .95, min_p .05", {.top_p = 0.95f, .min_p = 0.05f, .top_k = 40}},
    {"top_p .95", {.top_p = 0.95f}},
    {"min_p .05", {.min_p = 0.05f}},
    {"top_p .95, min_p .02, 1000 penalties", kPenalised},
    {"flat, top_p .99, temperature 2", {.temperature = 2.0f, .top_p = 0.99f}, true},
    {"flat, top_p .5", {.top_p = 0.5f}, true},
    {"flat, top_k 20000, top_p .9", {.top_p = 0.9f, .top_k = 20'000}, true},
};

// Arguments: setting, vocabulary, threads.
void SampleRow(benchmark::State& state) {
  const Setting& setting = kSettings[state.range(0)];
  const auto vocabulary = static_cast<int32_t>(state.range(1));
  const auto threads = static_cast<int>(state.range(2));
  const std::vector<float> row = RowOf(setting.flat, vocabulary);
  const std::vector<TokenAdjustment> penalties = Penalties(vocabulary);
  std::vector<float> logits(row.size());
  Sampler sampler(vocabulary, *UsableKernels().back());
  const std::unique_ptr<ComputePool> pool = threads > 1 ? std::make_unique<ComputePool>(threads) : nullptr;
  SampleRequest request{.params = setting.params, .adjustments = {}, .top_logprobs = setting.top_logprobs};
  if (setting.params.NeedsHistory()) request.adjustments = penalties;
  SampleResult result;
  while (state.KeepRunning()) {
    std::memcpy(logits.data(), row.data(), row.size() * sizeof(float));
    sampler.Sample(logits.data(), request, &result, pool.get());
    ++request.position;
    benchmark::DoNotOptimize(result.token);
  }
  state.SetLabel(setting.name);
}
BENCHMARK(SampleRow)
    ->ArgNames({"setting", "vocabulary", "threads"})
    ->ArgsProduct({benchmark::CreateDenseRange(0, std::size(kSettings) - 1, 1), kVocabularies, {1, 2}})
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

void CopyRow(benchmark::State& state) {
  const std::vector<float> row = RowOf(false, static_cast<int32_t>(state.range(0)));
  std::vector<float> logits(row.size());
  while (state.KeepRunning()) {
    std::memcpy(logits.data(), row.data(), row.size() * sizeof(float));
    benchmark::ClobberMemory();
  }
}
BENCHMARK(CopyRow)->ArgName("vocabulary")->ArgsProduct({kVocabularies})->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace headrace

BENCHMARK_MAIN();
