#include "server/serve_metrics.h"

#include "base/cpu.h"

namespace headrace {
namespace {

void WatchCounter(MetricsRegistry& metrics, const char* name, const char* help, const std::atomic<uint64_t>& value,
                  const MetricLabels& labels = {}) {
  metrics.Watch(name, help, labels, true,
                [&value] { return static_cast<double>(value.load(std::memory_order_relaxed)); });
}

// Counters that vLLM has, too.
void WatchCachedAndDrafted(MetricsRegistry& metrics, const EngineStats& s, const std::string& model_name,
                           bool vllm_names) {
  const auto both = [&](const char* ours, const char* theirs, const char* help, const std::atomic<uint64_t>& value) {
    const auto read = [&value] { return static_cast<double>(value.load(std::memory_order_relaxed)); };
    metrics.Watch(ours, help, {}, true, read);
    if (vllm_names) metrics.Watch(theirs, help, {{"model_name", model_name}, {"engine", "0"}}, true, read);
  };
  both("headrace_prefix_cache_query_tokens_total", "vllm:prefix_cache_queries_total",
       "Prompt tokens looked up in the prefix cache.", s.prefix_asked_tokens);
  both("headrace_prefix_cache_hit_tokens_total", "vllm:prefix_cache_hits_total",
       "Prompt tokens taken from the prefix cache.", s.prefix_hit_tokens);
  both("headrace_spec_drafted_tokens_total", "vllm:spec_decode_num_draft_tokens_total",
       "Draft tokens verified by speculation.", s.drafted_tokens);
  both("headrace_spec_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens_total",
       "Draft tokens taken into an answer.", s.accepted_tokens);
}

// What is refused and given up when too much comes.
void WatchOverload(MetricsRegistry& metrics, const EngineStats& s) {
  constexpr std::pair<Verdict, const char*> kRefusals[] = {{Verdict::kTooLate, "deadline"},
                                                           {Verdict::kNeverInTime, "deadline_never"},
                                                           {Verdict::kKeyLimit, "key_limit"},
                                                           {Verdict::kBandFull, "band_full"},
                                                           {Verdict::kFull, "full"},
                                                           {Verdict::kShed, "shed"},
                                                           {Verdict::kTenantPart, "tenant_part"}};
  for (const auto& [verdict, reason] : kRefusals) {
    WatchCounter(metrics, "headrace_sequences_refused_total", "Sequences that were refused at once, by the reason.",
                 s.refused[static_cast<size_t>(verdict)], {{"reason", reason}});
  }
  metrics.Watch("headrace_brown_out_rung", "0: nothing is given up; docs/overload.md names the rungs.", {}, false,
                [&s] { return s.rung.load(std::memory_order_relaxed); });
  constexpr std::pair<Rung, const char*> kRungNames[] = {{Rung::kNoDrafts, "no_drafts"},
                                                         {Rung::kNoBatch, "no_batch"},
                                                         {Rung::kShortAnswers, "short_answers"},
                                                         {Rung::kShedBatch, "shed_batch"},
                                                         {Rung::kShedNormal, "shed_normal"}};
  for (const auto& [rung, name] : kRungNames) {
    WatchCounter(metrics, "headrace_brown_outs_total", "How often each rung of the ladder was stepped on.",
                 s.brown_outs[static_cast<size_t>(rung)], {{"rung", name}});
  }
}

}  // namespace

void WatchEngine(MetricsRegistry& metrics, const Engine& engine, const std::string& model_name, bool vllm_names) {
  const EngineStats& s = engine.stats();
  const auto usage = [&engine] {
    return static_cast<double>(engine.stats().kv_blocks_used.load(std::memory_order_relaxed)) /
           engine.description().kv_blocks;
  };
  WatchCounter(metrics, "headrace_engine_steps_total", "Steps of the engine.", s.steps);
  WatchCounter(metrics, "headrace_engine_rows_total", "Rows computed in all steps.", s.rows);
  WatchCounter(metrics, "headrace_prompt_tokens_total", "Prompt tokens computed.", s.prompt_tokens);
  WatchCounter(metrics, "headrace_generated_tokens_total", "Tokens generated.", s.generated_tokens);
  WatchCounter(metrics, "headrace_preemptions_total", "Sequences that lost their KV blocks and were computed again.",
               s.preemptions);
  WatchCounter(metrics, "headrace_recomputed_tokens_total", "Tokens computed again that preemptions had lost.",
               s.recomputed_tokens);
  WatchCachedAndDrafted(metrics, s, model_name, vllm_names);
  WatchCounter(metrics, "headrace_prefix_cache_evictions_total", "Cached KV blocks that made room for others.",
               s.prefix_evictions);
  WatchCounter(metrics, "headrace_prefix_cache_pins_refused_total",
               "KV blocks that were not pinned: half of the pool was.", s.pins_refused);
  metrics.Watch("headrace_prefix_cache_pinned_blocks", "Cached KV blocks that prompt_cache_retention keeps.", {}, false,
                [&s] { return s.pinned_blocks.load(std::memory_order_relaxed); });
  metrics.Watch("headrace_prefix_cache_blocks", "KV blocks of 64 tokens that can be shared, in use or not.", {}, false,
                [&s] { return s.kv_blocks_cached.load(std::memory_order_relaxed); });
  WatchCounter(metrics, "headrace_sequences_finished_total", "Sequences by the reason of their end.", s.finished_stop,
               {{"reason", "stop"}});
  WatchCounter(metrics, "headrace_sequences_finished_total", "Sequences by the reason of their end.", s.finished_length,
               {{"reason", "length"}});
  WatchCounter(metrics, "headrace_sequences_finished_total", "Sequences by the reason of their end.", s.finished_error,
               {{"reason", "error"}});
  WatchCounter(metrics, "headrace_sequences_finished_total", "Sequences by the reason of their end.", s.cancelled,
               {{"reason", "cancelled"}});
  WatchOverload(metrics, s);
  WatchCounter(metrics, "headrace_answers_shortened_total", "Batch requests whose max_tokens were cut under overload.",
               s.shortened);
  metrics.Watch("headrace_sequences_running", "Sequences in the batch.", {}, false,
                [&s] { return s.running.load(std::memory_order_relaxed); });
  metrics.Watch("headrace_sequences_waiting", "Sequences that wait for a place.", {}, false,
                [&s] { return s.waiting.load(std::memory_order_relaxed); });
  metrics.Watch("headrace_kv_usage_ratio", "Share of the KV pool in use, 0 to 1.", {}, false, usage);
  metrics.Watch("headrace_kv_blocks_used", "KV blocks of 64 tokens in use.", {}, false,
                [&s] { return s.kv_blocks_used.load(std::memory_order_relaxed); });
  metrics.Watch("headrace_resident_memory_bytes", "Resident memory of the process.", {}, false,
                [] { return static_cast<double>(ResidentMemoryBytes()); });
  if (!vllm_names) return;
  const MetricLabels labels = {{"model_name", model_name}, {"engine", "0"}};
  metrics.Watch("vllm:num_requests_running", "Requests in the batch.", labels, false,
                [&s] { return s.running.load(std::memory_order_relaxed); });
  metrics.Watch("vllm:num_requests_waiting", "Requests that wait.", labels, false,
                [&s] { return s.waiting.load(std::memory_order_relaxed); });
  metrics.Watch("vllm:kv_cache_usage_perc", "Share of the KV cache in use, 0 to 1.", labels, false, usage);
}

}  // namespace headrace
