#include "simulate/simulation.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "base/random.h"
#include "engine/engine.h"
#include "executor/scripted/scripted_executor.h"
#include "simulate/driver.h"
#include "simulate/results.h"

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

// Random requests as records, and what is asked beside.
struct Traffic {
  std::vector<RecordedRequest> requests;
  std::vector<std::vector<int32_t>> prompts;
};

Traffic Draw(const SimulationOptions& o) {
  Traffic traffic;
  Random random(o.seed);
  double at_us = 0;
  for (uint64_t i = 0; i < static_cast<uint64_t>(o.requests); ++i) {
    at_us += -std::log(1.0 - random.Uniform()) / o.requests_per_second * 1e6;
    RecordedRequest r{.arrival_us = static_cast<int64_t>(at_us), .id = i + 1, .tenant = 1 + random.Below(3)};
    r.prompt_tokens = 1 + static_cast<int64_t>(random.Below(static_cast<uint64_t>(o.prompt_tokens_max)));
    r.sampling.max_tokens = 1 + static_cast<int64_t>(random.Below(static_cast<uint64_t>(o.new_tokens_max)));
    r.sampling.seed = o.seed + i;
    r.band = static_cast<int32_t>(random.Below(kBands));
    const bool shares = random.Uniform() < o.shared_share;
    const uint64_t family = random.Below(kFamilies);
    const uint64_t shared = shares ? random.Below(static_cast<uint64_t>(o.prompt_tokens_max)) : 0;
    std::vector<int32_t>& prompt = traffic.prompts.emplace_back();
    for (uint64_t t = 0; t < static_cast<uint64_t>(r.prompt_tokens); ++t)
      prompt.push_back(static_cast<int32_t>('a' + KeyedRandom(t < shared ? family : kFamilies + i, t) % 26));
    traffic.requests.push_back(std::move(r));
  }
  return traffic;
}

std::unique_ptr<EngineRequest> RequestOf(const RecordedRequest& r, const std::vector<int32_t>& prompt,
                                         const SimulationOptions& o, TimeNs now) {
  const auto after = [now](double seconds) {
    return seconds > 0 ? now + static_cast<TimeNs>(seconds * kNsPerSecond) : kNever;
  };
  auto request = std::make_unique<EngineRequest>();
  request->prompt = prompt;
  request->max_tokens = r.sampling.max_tokens;
  if (r.id % 20 == 0) request->keep_prompt = kNsPerMinute;
  request->sampling.seed = r.sampling.seed;
  request->place.band = static_cast<Band>(r.band);
  request->place.tenant = r.tenant;
  request->place.start_before = after(o.queue_timeout_s);
  request->finish_before = after(o.request_timeout_s);
  return request;
}

// Whether `answer` is what the scripted executor says to this prompt when it is alone, or the begin of it.
bool IsRight(const RecordedRequest& r, const std::vector<int32_t>& prompt, const std::vector<int32_t>& answer,
             bool whole, int64_t context, int32_t letters) {
  uint32_t history = 0;
  for (const int32_t token : prompt) history = ScriptHistory(history, token);
  const auto prompt_tokens = static_cast<int64_t>(prompt.size());
  auto position = static_cast<uint64_t>(prompt.size());
  for (const int32_t token : answer) {
    if (token != ScriptDraw(r.sampling.seed, history, position++, letters)) return false;
    history = ScriptHistory(history, token);
  }
  const auto length = static_cast<int64_t>(answer.size());
  const int64_t longest = std::min(r.sampling.max_tokens, context - prompt_tokens);
  if (!whole || length == longest) return true;
  return length < longest && ScriptDraw(r.sampling.seed, history, position, letters) == kScriptEnd;
}

class Simulation {
 public:
  Simulation(const SimulationOptions& options, std::unique_ptr<Tokenizer> tokenizer)
      : options_(options),
        traffic_(Draw(options)),
        tokenizer_(std::move(tokenizer)),
        random_(options.seed),
        driver_(traffic_.requests, clock_,
                [this](size_t i, TimeNs now) {
                  return RequestOf(traffic_.requests[i], traffic_.prompts[i], options_, now);
                }),
        script_(ScriptOf(options),
                [this](TimeNs time) {
                  DamageDisk();
                  driver_.Pass(time);
                }),
        faults_(options.seed, options.faults),
        executor_(script_, faults_, [this](TimeNs time) { driver_.Pass(time); }),
        tier_(TierOf(options, files_, clock_, executor_.Describe())),
        engine_(executor_, *tokenizer_, clock_,
                {.waiting_max = options.waiting_max,
                 .shared_tokens_max = options.shared_tokens_max,
                 .check_integrity = options.check,
                 .prefix_cache = options.prefix_cache,
                 .room_ahead = options.room_ahead,
                 .drafts_max = options.drafts_max,
                 .second_tier = &tier_,
                 .decisions = options.decisions}) {
    driver_.KeepAnswers();
    driver_.Attach(engine_, &faults_);
  }

  SimulationReport Run() {
    driver_.Run();
    CountOutcomes();
    report_.lost = static_cast<int>(driver_.lost());
    const EngineStats& s = engine_.stats();
    report_.trace_hash = driver_.events_hash();
    report_.steps = s.steps.load();
    report_.step_errors = faults_.step_errors();
    report_.preemptions = s.preemptions.load();
    report_.prompt_tokens = s.prompt_tokens.load();
    report_.generated_tokens = s.generated_tokens.load();
    report_.rows = s.rows.load();
    report_.drafted_tokens = s.drafted_tokens.load();
    report_.accepted_tokens = s.accepted_tokens.load();
    report_.dropped = s.cancelled.load();
    report_.prefix_asked_tokens = s.prefix_asked_tokens.load();
    report_.prefix_hit_tokens = s.prefix_hit_tokens.load();
    report_.prefix_evictions = s.prefix_evictions.load();
    for (const TierStats* stats :
         {tier_.memory ? &tier_.memory->stats() : nullptr, tier_.disk ? &tier_.disk->stats() : nullptr}) {
      if (stats == nullptr) continue;
      report_.restored_blocks += stats->restored.load();
      report_.damaged_blocks += stats->damaged.load();
    }
    report_.virtual_time = clock_.Now() - kVirtualStart;
    report_.kv_blocks_left_in_use = s.kv_blocks_used.load();
    for (int state = 0; state < kRequestStates; ++state)
      report_.cancelled_in[state] = faults_.cancelled_in(static_cast<RequestState>(state));
    const Distribution ttft = Tabulate(driver_.results(), {}, {}).ttft_ms;
    report_.ttft_ms_p50 = ttft.p50;
    report_.ttft_ms_p99 = ttft.p99;
    return report_;
  }

 private:
  void DamageDisk() {
    if (options_.damaged_share == 0 || files_.files.empty()) return;
    files_.full = random_.Uniform() < options_.damaged_share / 50;  // the tier rests long after each
    if (random_.Uniform() >= options_.damaged_share) return;
    auto file = std::next(files_.files.begin(), static_cast<int64_t>(random_.Below(files_.files.size())));
    std::vector<std::byte>& bytes = file->second.bytes;
    bytes[random_.Below(bytes.size())] ^= static_cast<std::byte>(1 << random_.Below(8));
    if (random_.Below(4) == 0) bytes.resize(1 + random_.Below(bytes.size()));
  }

  void CountOutcomes() {
    for (size_t i = 0; i < traffic_.requests.size(); ++i) {
      const Outcome outcome = driver_.results()[i].outcome;
      (outcome == Outcome::kFinished    ? report_.finished
       : outcome == Outcome::kCancelled ? report_.cancelled
       : outcome == Outcome::kRefused   ? report_.refused
       : outcome == Outcome::kExpired   ? report_.expired
                                        : report_.failed) += 1;
      const std::vector<int32_t>& answer = driver_.answers()[i];
      if (!IsRight(traffic_.requests[i], traffic_.prompts[i], answer, outcome == Outcome::kFinished,
                   std::min<int64_t>(options_.context, int64_t{options_.kv_blocks} * 64), options_.letters))
        ++report_.wrong_answers;
      for (size_t t = 0; t < answer.size(); ++t)
        report_.answers_hash += SplitMix64(SplitMix64(i) ^ KeyedRandom(t, static_cast<uint32_t>(answer[t])));
    }
  }

  const SimulationOptions options_;
  const Traffic traffic_;
  VirtualClock clock_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Random random_;
  TrafficDriver driver_;
  ScriptedExecutor script_;
  Faults faults_;
  FaultyExecutor executor_;
  MemoryFiles files_;
  SecondTier tier_;
  Engine engine_;
  SimulationReport report_;
};

}  // namespace

Result<SimulationReport> RunSimulation(const SimulationOptions& options) {
  HR_ASSIGN_OR_RETURN(auto tokenizer, Tokenizer::FromVocabulary(ScriptVocabulary(ScriptOf(options))));
  return Simulation(options, std::move(tokenizer)).Run();
}

}  // namespace headrace
