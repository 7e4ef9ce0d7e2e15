#include "simulate/replay_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "json/json.h"

namespace headrace {
namespace {

Json AsJson(const Distribution& d) {
  Json json = {{"mean", d.mean}, {"p50", d.p50},         {"p90", d.p90},
               {"p99", nullptr}, {"largest", d.largest}, {"samples", d.count}};
  if (d.count >= kSamplesForP99) json["p99"] = d.p99;
  return json;
}

double TimesRealTime(const ReplayReport& report, double wall_seconds) {
  return report.virtual_seconds / std::max(wall_seconds, 1e-9);
}

}  // namespace

std::string ReplayAsText(const ReplayReport& r, const ReplayOptions& options, double wall_seconds) {
  std::string out = FormatTable(r.table, options.target);
  fmt::format_to(
      std::back_inserter(out),
      "{} steps, {} preemptions, {} evictions, {} prompt and {} answer tokens computed, {} again; {:.0f} % of the KV "
      "cache in use while others wait\n"
      "{:.0f} s simulated in {:.2f} s: {:.0f} x real time{}\n",
      r.steps, r.preemptions, r.evictions, r.prompt_tokens, r.generated_tokens, r.recomputed_tokens, 100 * r.kv_usage,
      r.virtual_seconds, wall_seconds, TimesRealTime(r, wall_seconds), options.check ? ", every step checked" : "");
  return out;
}

std::string ReplayAsJson(const ReplayReport& r, double wall_seconds) {
  const ResultTable& t = r.table;
  const Json json = {{"requests", t.requests},
                     {"finished", t.finished},
                     {"refused", t.refused},
                     {"expired", t.expired},
                     {"cancelled", t.cancelled},
                     {"failed", t.failed},
                     {"ttft_ms", AsJson(t.ttft_ms)},
                     {"tpot_ms", AsJson(t.tpot_ms)},
                     {"itl_ms", AsJson(t.itl_ms)},
                     {"e2e_ms", AsJson(t.e2e_ms)},
                     {"goodput", t.goodput},
                     {"attainment", t.attainment},
                     {"output_tokens_per_second", t.output_tokens_per_second},
                     {"hit_rate", t.hit_rate},
                     {"fairness", t.fairness},
                     {"steps", r.steps},
                     {"preemptions", r.preemptions},
                     {"evictions", r.evictions},
                     {"prompt_tokens_computed", r.prompt_tokens},
                     {"answer_tokens_computed", r.generated_tokens},
                     {"recomputed_tokens", r.recomputed_tokens},
                     {"kv_usage", r.kv_usage},
                     {"events_hash", fmt::format("{:016x}", r.events_hash)},
                     {"virtual_seconds", r.virtual_seconds},
                     {"wall_seconds", wall_seconds},
                     {"times_real_time", TimesRealTime(r, wall_seconds)}};
  return DumpJson(json) + "\n";
}

}  // namespace headrace
