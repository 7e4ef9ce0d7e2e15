#include "queueing/admission.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace headrace {
namespace {

// A day: longer is "never" to every caller, and sums of such times do not overflow.
constexpr double kFarSeconds = 86'400;

TimeNs After(double amount, double per_second) {
  if (per_second <= 0) return 0;
  return static_cast<TimeNs>(std::min(amount / per_second, kFarSeconds) * kNsPerSecond);
}

// Less than half of an equal part of a band's line: not who makes it long.
bool HoldsLittle(const WaitingQueue& line, const QueueSpec& spec) {
  const int64_t equal_parts = std::max(1, line.tenants_in_line(spec.band));
  return 2 * equal_parts * line.waiting_of(spec.tenant, spec.band) < line.waiting(spec.band);
}

}  // namespace

TimeNs PredictTtft(const LineAhead& ahead, int64_t tokens, const ServiceRates& rates) {
  const TimeNs own = std::max(After(static_cast<double>(tokens), rates.tokens_per_second), rates.step);
  const TimeNs work = After(static_cast<double>(ahead.tokens), rates.tokens_per_second);
  const TimeNs place = After(std::max(0, ahead.requests + 1 - rates.free_places), rates.starts_per_second);
  return std::max(work, place) + own;
}

AdmissionLimits DefaultAdmissionLimits(int32_t waiting_max) {
  const auto part = [&](int32_t of) { return waiting_max == 0 ? 0 : std::max(1, waiting_max / of); };
  const int32_t all = waiting_max + part(4);
  return {.waiting_max = all, .band_waiting_max = {all, all, waiting_max, part(2)}, .others = part(8)};
}

AdmissionAnswer Admission::Judge(const WaitingQueue& line, const QueueSpec& spec, const ServiceRates& rates, TimeNs now,
                                 uint64_t random, bool shed) {
  const LineAhead ahead = line.Ahead(spec);
  AdmissionAnswer answer{.ttft = PredictTtft(ahead, spec.remaining_tokens, rates)};
  answer.verdict = shed && !HoldsLittle(line, spec) ? Verdict::kShed : Choose(line, spec, rates, now, answer.ttft);
  if (answer.verdict == Verdict::kTooLate && PredictTtft({}, spec.remaining_tokens, rates) > spec.deadline - now)
    answer.verdict = Verdict::kNeverInTime;
  if (answer.verdict == Verdict::kAdmit) of(spec.band).promises.Keep(spec.fingerprint);
  if (answer.verdict == Verdict::kAdmit || answer.verdict == Verdict::kNeverInTime) return answer;
  const TimeNs wait = Wait(line, spec, rates, now, answer);
  answer.retry_after = std::clamp(wait, kLeastRetryAfter, kLongestRetryAfter) +
                       static_cast<TimeNs>(random % static_cast<uint64_t>(kRetryJitter));
  return answer;
}

Verdict Admission::Choose(const WaitingQueue& line, const QueueSpec& spec, const ServiceRates& rates, TimeNs now,
                          TimeNs ttft) const {
  if (spec.tenant_waiting_limit > 0 && line.waiting_of(spec.tenant) >= spec.tenant_waiting_limit)
    return Verdict::kKeyLimit;
  if (const Verdict verdict = ChoosePlace(line, spec, rates, now); verdict != Verdict::kAdmit) return verdict;
  if (spec.deadline != kNever && (spec.deadline <= now || ttft > spec.deadline - now)) return Verdict::kTooLate;
  return Verdict::kAdmit;
}

Verdict Admission::ChoosePlace(const WaitingQueue& line, const QueueSpec& spec, const ServiceRates& rates,
                               TimeNs now) const {
  // Whose time has come uses its own place; the others of its tenant leave those of callers who were told to come
  // alone.
  const Promises& promises = of(spec.band).promises;
  const int32_t held = promises.Find(spec.fingerprint, now) <= now ? 0 : promises.Held(spec.tenant, now);
  // Who begins with the next step does not wait.
  const auto judge = [&](int32_t waiting, int32_t own, int32_t most, Verdict full) {
    const int32_t left = most + limits_.others - waiting + rates.free_places;
    if (left <= 0) return full;
    const bool has_its_part = limits_.others > 0 && own > kPlacesPerFree * (left - 1);
    if (own + held - rates.free_places < most && !has_its_part) return Verdict::kAdmit;
    return own == waiting ? full : Verdict::kTenantPart;
  };
  const Verdict all = judge(line.waiting(), line.waiting_of(spec.tenant), limits_.waiting_max, Verdict::kFull);
  if (all != Verdict::kAdmit) return all;
  return judge(line.waiting(spec.band), line.waiting_of(spec.tenant, spec.band),
               limits_.band_waiting_max[static_cast<size_t>(spec.band)], Verdict::kBandFull);
}

TimeNs Admission::Wait(const WaitingQueue& line, const QueueSpec& spec, const ServiceRates& rates, TimeNs now,
                       const AdmissionAnswer& answer) {
  switch (answer.verdict) {
    case Verdict::kTooLate:  // as much less in line as the deadline lacks
      return Promise(spec, rates, now, now + answer.ttft - spec.deadline, &of(spec.band).last_late);
    case Verdict::kShed:  // as long as the line takes to be served
      return std::max(answer.ttft, kNsPerSecond);
    case Verdict::kKeyLimit:  // one of its own begins: they leave about evenly over the newcomer's wait
      return answer.ttft / std::max(1, line.waiting_of(spec.tenant));
    default:
      return Promise(spec, rates, now, 0, &of(spec.band).last);
  }
}

// A request leaves the line as often as places become free and as its work takes, whichever is slower.
TimeNs Admission::Promise(const QueueSpec& spec, const ServiceRates& rates, TimeNs now, TimeNs least, TimeNs* last) {
  Promises& promises = of(spec.band).promises;
  const TimeNs told = promises.Find(spec.fingerprint, now);
  if (told != kNever && told > now) return told - now;
  const TimeNs apart = std::max(After(static_cast<double>(spec.remaining_tokens), rates.tokens_per_second),
                                After(1, rates.starts_per_second));
  const TimeNs after_last = std::max(now, *last) + apart - now;
  const TimeNs wait = std::clamp(std::max(least, after_last), kLeastRetryAfter, kLongestRetryAfter);
  *last = now + wait;
  promises.Give(spec.fingerprint, spec.tenant, *last);
  return wait;
}

Error RefusalError(const AdmissionAnswer& answer, const QueueSpec& spec, TimeNs now) {
  CHECK(answer.verdict != Verdict::kAdmit);
  const int64_t retry_ms = (answer.retry_after + kNsPerMs - 1) / kNsPerMs;
  switch (answer.verdict) {
    case Verdict::kTooLate:
      return {ErrorCode::kOverloaded,
              fmt::format("The first token would come in about {} ms, after the deadline in {} ms, so the request was "
                          "not queued. Retry later, or allow more time.",
                          answer.ttft / kNsPerMs, std::max<TimeNs>(0, spec.deadline - now) / kNsPerMs),
              "deadline", retry_ms};
    case Verdict::kNeverInTime:
      return {ErrorCode::kDeadlineExceeded,
              fmt::format("The prompt alone takes about {} ms here and the deadline is in {} ms. Shorten the prompt or "
                          "allow more time.",
                          answer.ttft / kNsPerMs, std::max<TimeNs>(0, spec.deadline - now) / kNsPerMs),
              "deadline", 0};
    case Verdict::kKeyLimit:
      return {ErrorCode::kRateLimited,
              fmt::format("{} requests of this key's tenant are waiting, as many as may. Retry later.",
                          spec.tenant_waiting_limit),
              {},
              retry_ms};
    case Verdict::kTenantPart:
      return {ErrorCode::kRateLimited,
              "This key's tenant has so many requests waiting that the places left are others'. Retry later.",
              {},
              retry_ms};
    case Verdict::kBandFull:
      return {ErrorCode::kOverloaded,
              "As many requests of this priority are waiting as may. Retry later, or with a more urgent priority if "
              "the key allows it.",
              {},
              retry_ms};
    case Verdict::kShed:
      return {ErrorCode::kOverloaded,
              "More comes than can be served, so requests of this priority are refused for now. Retry later.",
              {},
              retry_ms};
    default:
      return {ErrorCode::kOverloaded, "The server is full: every place to wait is taken. Retry later.", {}, retry_ms};
  }
}

}  // namespace headrace
