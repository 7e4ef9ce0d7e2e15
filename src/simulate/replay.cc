#include "simulate/replay.h"

#include <algorithm>
#include <memory>

#include "engine/engine.h"
#include "executor/scripted/script.h"
#include "kv_cache/block_name.h"
#include "simulate/driver.h"
#include "simulate/traffic.h"

namespace headrace {
namespace {

// Room for token ids that tell blocks apart; no vocabulary has to hold them.
constexpr int32_t kPromptVocabulary = INT32_MAX;

EngineOptions EngineOptionsOf(const ReplayOptions& o) {
  return {.waiting_max = o.waiting_max,
          .shared_tokens_max = o.shared_tokens_max,
          .check_integrity = o.check,
          .prefix_cache = o.prefix_cache,
          .order = o.order,
          .itl_target = o.itl_target,
          .brown_out_wait = o.brown_out_wait};
}

std::unique_ptr<EngineRequest> RequestOf(const RecordedRequest& r, size_t index, const ReplayOptions& o, TimeNs now) {
  auto request = std::make_unique<EngineRequest>();
  PromptTokens(r, kPromptVocabulary, &request->prompt);
  request->max_tokens = std::max({r.output_tokens, o.answer_limit, int64_t{1}});
  request->ignore_eos = o.answer_limit == 0;
  request->sampling.seed = index;
  request->place.band = static_cast<Band>(std::clamp(r.band, 0, kBands - 1));
  request->place.tenant = r.tenant;
  if (o.queue_timeout_s > 0) request->place.start_before = now + static_cast<TimeNs>(o.queue_timeout_s * kNsPerSecond);
  return request;
}

Status Check(const ReplayOptions& o) {
  const VirtualMachine& m = o.machine;
  if (m.kv_tokens < kBlockTokens || m.kv_tokens / kBlockTokens > INT32_MAX)
    return Fail(ErrorCode::kInvalidArgument, "the KV cache must hold at least one block of 64 tokens", "kv-tokens");
  if (m.context < 1 || m.batch_tokens_max < 1 || m.sequences_max < 1)
    return Fail(ErrorCode::kInvalidArgument, "a replica computes at least one token of one sequence", "");
  return {};
}

}  // namespace

Result<ReplayReport> Replay(std::span<const RecordedRequest> requests, const ReplayOptions& options) {
  HR_RETURN_IF_ERROR(Check(options));
  HR_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::FromVocabulary(ScriptVocabulary({})));
  VirtualClock clock;
  TrafficDriver driver(requests, clock,
                       [&](size_t index, TimeNs now) { return RequestOf(requests[index], index, options, now); });
  const auto pass = [&driver](TimeNs time) { driver.Pass(time); };
  VirtualExecutor::EndsAt ends_at;
  if (options.answer_limit > 0)
    ends_at = [&](uint64_t index, uint64_t position) {
      const RecordedRequest& r = requests[index];
      return static_cast<int64_t>(position) - r.prompt_tokens >= r.output_tokens;
    };
  VirtualExecutor machine(options.machine, pass, std::move(ends_at));
  Faults faults(options.seed, options.faults);
  FaultyExecutor faulty(machine, faults, pass);
  const bool has_faults = options.faults != FaultRates{};
  Engine engine(has_faults ? static_cast<Executor&>(faulty) : machine, *tokenizer, clock, EngineOptionsOf(options));
  driver.Attach(engine, has_faults ? &faults : nullptr);
  driver.Run();

  ReplayReport report;
  report.virtual_seconds = static_cast<double>(clock.Now() - kVirtualStart) / kNsPerSecond;
  report.table = Tabulate(driver.results(), driver.gaps_ms(), options.target);
  report.events_hash = driver.events_hash();
  const EngineStats& stats = engine.stats();
  report.steps = stats.steps.load();
  report.preemptions = stats.preemptions.load();
  report.recomputed_tokens = stats.recomputed_tokens.load();
  report.kv_usage = driver.UsageWhileWaiting();
  report.evictions = stats.prefix_evictions.load();
  report.prompt_tokens = stats.prompt_tokens.load();
  report.generated_tokens = stats.generated_tokens.load();
  return report;
}

}  // namespace headrace
