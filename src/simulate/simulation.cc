#include "simulate/simulation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <vector>

#include "base/random.h"
#include "engine/engine.h"
#include "executor/scripted/scripted_executor.h"

namespace headrace {
namespace {

Script ScriptOf(const SimulationOptions& o) {
  Script script;
  script.context = o.context;
  script.kv_blocks = o.kv_blocks;
  script.sequences_max = o.sequences_max;
  script.batch_tokens_max = o.batch_tokens_max;
  script.step_us = o.step_us;
  script.row_us = o.row_us;
  script.drafts_max = o.drafts_max;
  script.letters = o.letters;
  script.prefill_us_per_token = o.prefill_us_per_token;
  return script;
}

SecondTier TierOf(const SimulationOptions& o, MemoryFiles& files, const Clock& clock, const ExecutorDescription& d) {
  SecondTier tier{.virtual_disk_took = o.disk_us_per_block * kNsPerUs};
  if (o.memory_tier_blocks > 0)
    tier.memory =
        std::move(MemoryTier::Make(static_cast<uint64_t>(o.memory_tier_blocks) * d.block_bytes, d.block_bytes).value());
  if (o.disk_tier_blocks == 0) return tier;
  // A file takes whole pages; these blocks take one.
  auto folder = BlockFolder::Open(std::make_unique<MemoryFolder>(files),
                                  std::make_unique<BlockSeal>(DeploymentKey::Draw(), d.fingerprint, d.block_bytes),
                                  uint64_t{4096} * o.disk_tier_blocks);
  tier.disk = std::move(DiskTier::Make(std::move(folder.value()), clock).value());
  return tier;
}

class Simulation {
 public:
  Simulation(const SimulationOptions& options, std::unique_ptr<Tokenizer> tokenizer)
      : options_(options),
        random_(options.seed),
        tokenizer_(std::move(tokenizer)),
        executor_(ScriptOf(options), [this](TimeNs time) { clock_.Advance(time); }),
        tier_(TierOf(options, files_, clock_, executor_.Describe())),
        engine_(executor_, *tokenizer_, clock_,
                {.waiting_max = options.waiting_max,
                 .check_integrity = options.check,
                 .prefix_cache = options.prefix_cache,
                 .drafts_max = options.drafts_max,
                 .second_tier = &tier_}) {
    clock_.Set(1);
  }

  SimulationReport Run() {
    PlanArrivals();
    while (next_arrival_ < arrivals_.size() || engine_.inside() > 0) {
      Arrive();
      CancelDue();
      DamageDisk();
      const TimeNs wake = engine_.Step(clock_.Now());
      Collect();
      const TimeNs arrival = next_arrival_ < arrivals_.size() ? arrivals_[next_arrival_].at : kNever;
      if (const TimeNs next = std::min(wake, arrival); next != kNever && wake > clock_.Now())
        clock_.Set(std::max(clock_.Now(), next));
    }
    engine_.Step(clock_.Now());
    return Finish();
  }

 private:
  struct Arrival {
    TimeNs at;
    int64_t prompt_tokens;
    int64_t new_tokens;
    TimeNs cancel_after;  // kNever: not
    Band band;
    int64_t shared_tokens;  // of the prompt, from the text of a family
    uint64_t family;
  };
  struct Open {
    std::shared_ptr<EngineStream> stream;
    size_t number;
    TimeNs arrived;
    TimeNs cancel_at;
    uint64_t tokens = 0;
    bool started = false;
    bool done = false;
  };

  void PlanArrivals() {
    double at = 1;
    for (int i = 0; i < options_.requests; ++i) {
      at += -std::log(1.0 - random_.Uniform()) / options_.requests_per_second * 1e9;
      const bool cancelled = random_.Uniform() < options_.cancelled_share;
      const bool shares = random_.Uniform() < options_.shared_share;
      arrivals_.push_back(
          {static_cast<TimeNs>(at),
           1 + static_cast<int64_t>(random_.Below(static_cast<uint64_t>(options_.prompt_tokens_max))),
           1 + static_cast<int64_t>(random_.Below(static_cast<uint64_t>(options_.new_tokens_max))),
           cancelled ? static_cast<TimeNs>(random_.Below(3 * kNsPerSecond)) : kNever,
           static_cast<Band>(random_.Below(kBands)),
           shares ? static_cast<int64_t>(random_.Below(static_cast<uint64_t>(options_.prompt_tokens_max))) : 0,
           random_.Below(kFamilies)});
    }
  }

  void Arrive() {
    for (; next_arrival_ < arrivals_.size() && arrivals_[next_arrival_].at <= clock_.Now(); ++next_arrival_) {
      const Arrival& a = arrivals_[next_arrival_];
      auto request = std::make_unique<EngineRequest>();
      for (int64_t t = 0; t < a.prompt_tokens; ++t) {
        const uint64_t text = t < a.shared_tokens ? a.family : kFamilies + next_arrival_;
        request->prompt.push_back(static_cast<int32_t>('a' + KeyedRandom(text, static_cast<uint64_t>(t)) % 26));
      }
      request->max_tokens = a.new_tokens;
      request->sampling.seed = options_.seed + next_arrival_;
      request->place.band = a.band;
      request->place.start_before = clock_.Now() + static_cast<TimeNs>(options_.queue_timeout_s * kNsPerSecond);
      auto stream = engine_.Submit(std::move(request), nullptr);
      if (stream) {
        open_.push_back({std::move(*stream), next_arrival_, a.at,
                         a.cancel_after == kNever ? kNever : clock_.Now() + a.cancel_after});
      } else {
        ++report_.refused;
        Note(next_arrival_, static_cast<uint64_t>(stream.error().code));
      }
    }
  }

  void CancelDue() {
    for (Open& open : open_) {
      if (open.done || open.cancel_at > clock_.Now()) continue;
      open.stream->Cancel();
      open.done = true;
      ++report_.cancelled;
      Note(open.stream->id(), 1);
    }
    std::erase_if(open_, [](const Open& open) { return open.done; });
  }

  void DamageDisk() {
    if (options_.damaged_share == 0 || files_.files.empty()) return;
    files_.full = random_.Uniform() < options_.damaged_share / 50;  // the tier rests long after each
    if (random_.Uniform() >= options_.damaged_share) return;
    auto file = std::next(files_.files.begin(), static_cast<int64_t>(random_.Below(files_.files.size())));
    std::vector<std::byte>& bytes = file->second.bytes;
    bytes[random_.Below(bytes.size())] ^= static_cast<std::byte>(1 << random_.Below(8));
    if (random_.Below(4) == 0) bytes.resize(1 + random_.Below(bytes.size()));
  }

  void Collect() {
    for (Open& open : open_) {
      for (TokenEvent event; open.stream->Pop(event);) {
        if (event.token >= 0 && !open.started) {
          open.started = true;
          ttft_ms_.push_back(static_cast<double>(clock_.Now() - open.arrived) / kNsPerMs);
        }
        Note(open.stream->id(),
             (static_cast<uint64_t>(static_cast<uint32_t>(event.token)) << 8) | static_cast<uint64_t>(event.finish));
        report_.answers_hash +=
            SplitMix64(SplitMix64(open.number) ^ KeyedRandom(open.tokens++, static_cast<uint32_t>(event.token)));
        if (event.finish == EndReason::kNone) continue;
        open.done = true;
        (event.finish == EndReason::kError ? report_.expired : report_.finished) += 1;
      }
    }
    std::erase_if(open_, [](const Open& open) { return open.done; });
  }

  void Note(uint64_t who, uint64_t what) {
    report_.trace_hash =
        SplitMix64(report_.trace_hash ^ SplitMix64(who) ^ SplitMix64(what + 1) ^ static_cast<uint64_t>(clock_.Now()));
  }

  SimulationReport Finish() {
    const EngineStats& s = engine_.stats();
    report_.lost = static_cast<int>(open_.size());
    report_.steps = s.steps.load();
    report_.preemptions = s.preemptions.load();
    report_.prompt_tokens = s.prompt_tokens.load();
    report_.generated_tokens = s.generated_tokens.load();
    report_.rows = s.rows.load();
    report_.drafted_tokens = s.drafted_tokens.load();
    report_.accepted_tokens = s.accepted_tokens.load();
    report_.prefix_asked_tokens = s.prefix_asked_tokens.load();
    report_.prefix_hit_tokens = s.prefix_hit_tokens.load();
    report_.prefix_evictions = s.prefix_evictions.load();
    for (const TierStats* stats :
         {tier_.memory ? &tier_.memory->stats() : nullptr, tier_.disk ? &tier_.disk->stats() : nullptr}) {
      if (stats == nullptr) continue;
      report_.restored_blocks += stats->restored.load();
      report_.damaged_blocks += stats->damaged.load();
    }
    report_.virtual_time = clock_.Now();
    report_.kv_blocks_left_in_use = s.kv_blocks_used.load();
    std::sort(ttft_ms_.begin(), ttft_ms_.end());
    if (!ttft_ms_.empty()) {
      report_.ttft_ms_p50 = ttft_ms_[ttft_ms_.size() / 2];
      report_.ttft_ms_p99 = ttft_ms_[ttft_ms_.size() * 99 / 100];
    }
    return report_;
  }

  const SimulationOptions options_;
  Random random_;
  VirtualClock clock_;
  std::unique_ptr<Tokenizer> tokenizer_;
  ScriptedExecutor executor_;
  MemoryFiles files_;
  SecondTier tier_;
  Engine engine_;
  std::vector<Arrival> arrivals_;
  size_t next_arrival_ = 0;
  std::vector<Open> open_;
  std::vector<double> ttft_ms_;
  SimulationReport report_;
};

}  // namespace

Result<SimulationReport> RunSimulation(const SimulationOptions& options) {
  HR_ASSIGN_OR_RETURN(auto tokenizer, Tokenizer::FromVocabulary(ScriptVocabulary(ScriptOf(options))));
  return Simulation(options, std::move(tokenizer)).Run();
}

}  // namespace headrace
