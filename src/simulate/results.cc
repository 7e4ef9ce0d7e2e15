#include "simulate/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

namespace headrace {
namespace {

double Ms(TimeNs time) { return static_cast<double>(time) / kNsPerMs; }

bool HasFirstToken(const RequestResult& r) { return r.first_token != kNever; }

double TpotMs(const RequestResult& r) {
  return Ms(r.end - r.first_token) / static_cast<double>(std::max<int64_t>(r.output_tokens - 1, 1));
}

bool MeetsTarget(const RequestResult& r, const LatencyTarget& target) {
  return r.outcome == Outcome::kFinished && HasFirstToken(r) && r.first_token - r.arrival <= target.ttft &&
         (r.output_tokens < 2 || TpotMs(r) <= Ms(target.tpot));
}

void Count(Outcome outcome, ResultTable* table) {
  switch (outcome) {
    case Outcome::kFinished:
      ++table->finished;
      return;
    case Outcome::kRefused:
      ++table->refused;
      return;
    case Outcome::kExpired:
      ++table->expired;
      return;
    case Outcome::kCancelled:
      ++table->cancelled;
      return;
    case Outcome::kFailed:
      ++table->failed;
      return;
  }
}

double FairnessOf(std::span<const RequestResult> results) {
  std::map<uint64_t, double> by_tenant;
  for (const RequestResult& r : results) {
    if (!HasFirstToken(r) || r.weight <= 0) continue;
    by_tenant[r.tenant] += static_cast<double>(r.prompt_tokens - r.cached_tokens + r.output_tokens) / r.weight;
  }
  std::vector<double> shares;
  for (const auto& [tenant, tokens] : by_tenant) shares.push_back(tokens);
  return JainIndex(shares);
}

void AppendRow(std::string* out, std::string_view name, const Distribution& d) {
  if (d.count == 0) return;
  const std::string p99 = d.count < kSamplesForP99 ? "-" : fmt::format("{:.1f}", d.p99);
  fmt::format_to(std::back_inserter(*out), "{:<9}{:>10.1f}{:>10.1f}{:>10.1f}{:>10}{:>10.1f}{:>10}\n", name, d.mean,
                 d.p50, d.p90, p99, d.largest, d.count);
}

}  // namespace

ResultTable Tabulate(std::span<const RequestResult> results, std::vector<double> gaps_ms, const LatencyTarget& target) {
  ResultTable table{
      .requests = results.size(), .itl_ms = Describe(std::move(gaps_ms)), .fairness = FairnessOf(results)};
  if (results.empty()) return table;
  std::vector<double> ttft, tpot, e2e;
  TimeNs first = kNever, last = 0;
  int64_t output = 0, prompt = 0, cached = 0;
  size_t good = 0;
  for (const RequestResult& r : results) {
    Count(r.outcome, &table);
    first = std::min(first, r.arrival);
    last = std::max(last, r.end == kNever ? r.arrival : r.end);
    good += MeetsTarget(r, target) ? 1 : 0;
    if (!HasFirstToken(r)) continue;
    ttft.push_back(Ms(r.first_token - r.arrival));
    prompt += r.prompt_tokens;
    cached += r.cached_tokens;
    output += r.output_tokens;
    if (r.outcome != Outcome::kFinished) continue;
    if (r.output_tokens > 1) tpot.push_back(TpotMs(r));
    e2e.push_back(Ms(r.end - r.arrival));
  }
  table.ttft_ms = Describe(std::move(ttft));
  table.tpot_ms = Describe(std::move(tpot));
  table.e2e_ms = Describe(std::move(e2e));
  table.seconds = static_cast<double>(last - first) / kNsPerSecond;
  table.attainment = static_cast<double>(good) / static_cast<double>(results.size());
  if (table.seconds > 0) {
    table.goodput = static_cast<double>(good) / table.seconds;
    table.output_tokens_per_second = static_cast<double>(output) / table.seconds;
  }
  if (prompt > 0) table.hit_rate = static_cast<double>(cached) / static_cast<double>(prompt);
  return table;
}

std::string FormatTable(const ResultTable& t, const LatencyTarget& target) {
  std::string out = fmt::format("{:<9}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "ms", "mean", "p50", "p90", "p99",
                                "largest", "samples");
  AppendRow(&out, "TTFT", t.ttft_ms);
  AppendRow(&out, "TPOT", t.tpot_ms);
  AppendRow(&out, "ITL", t.itl_ms);
  AppendRow(&out, "E2E", t.e2e_ms);
  fmt::format_to(std::back_inserter(out),
                 "requests {}: finished {}, refused {}, expired {}, cancelled {}, failed {}\n"
                 "goodput {:.2f}/s, attainment {:.3f} (TTFT <= {:.0f} ms, TPOT <= {:.0f} ms)\n"
                 "output {:.0f} tokens/s, hit rate {:.3f}, fairness {:.3f}, {:.0f} s\n",
                 t.requests, t.finished, t.refused, t.expired, t.cancelled, t.failed, t.goodput, t.attainment,
                 Ms(target.ttft), Ms(target.tpot), t.output_tokens_per_second, t.hit_rate, t.fairness, t.seconds);
  return out;
}

}  // namespace headrace
