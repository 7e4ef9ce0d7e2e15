// Whether a request may join the line, and when a refused one should come back. Predictions are arithmetic over the
// line and measured rates: no clock, no draw of its own. One thread (that of the line).
#pragma once

#include <array>
#include <cstdint>

#include "base/clock.h"
#include "base/result.h"
#include "queueing/promises.h"
#include "queueing/waiting_queue.h"

namespace headrace {

// What the machine was measured to do, over the last seconds. 0: not measured yet, and then nothing is refused for it.
struct ServiceRates {
  double tokens_per_second = 0;  // prompt tokens computed, beside what decodes take
  double starts_per_second = 0;  // requests that leave the line
  int32_t free_places = 0;       // requests that could begin now
  TimeNs step = 0;               // of one step: no first token comes sooner
};

// The time until the first token of a request of `tokens` uncached prompt tokens behind `ahead`.
TimeNs PredictTtft(const LineAhead& ahead, int64_t tokens, const ServiceRates& rates);

// What one tenant may hold. `others` more places, in each band and in all, are there for those who hold few: nobody
// holds more than kPlacesPerFree times the places that he leaves free (Choudhury and Hahne, "Dynamic queue length
// thresholds for shared-memory packet switches", 1998). So one who floods the line leaves an eighth of it to others.
struct AdmissionLimits {
  int32_t waiting_max = 0;                         // of all bands, beside those for whom a place is free
  std::array<int32_t, kBands> band_waiting_max{};  // of each, so that a low band cannot fill a high one's places
  int32_t others = 0;                              // 0: tenants do not matter

  int32_t places() const { return waiting_max + others; }
};
constexpr int32_t kPlacesPerFree = 8;
// As many places as said for the normal band, half of them for batch work, and a quarter more that only urgent bands
// may take, an eighth more for other tenants; at least one each when there are any.
AdmissionLimits DefaultAdmissionLimits(int32_t waiting_max);

enum class Verdict : uint8_t {
  kAdmit,
  kTooLate,      // would miss its deadline: 503
  kNeverInTime,  // would miss it on an idle server, too: 504 without Retry-After
  kKeyLimit,     // as many of its key wait as may: 429
  kTenantPart,   // its tenant holds its part of the places, others have the rest: 429
  kBandFull,     // 503
  kFull,         // 503
  kShed,         // the band is given up for now (brown_out.h), but for tenants who hold little of it: 503
};
constexpr int kVerdicts = 8;

struct AdmissionAnswer {
  Verdict verdict = Verdict::kAdmit;
  TimeNs ttft = 0;         // predicted
  TimeNs retry_after = 0;  // of a refusal, with its jitter
};

// Retry-After, honest: when it is over, the line has drained so far that the same request is let in, at the measured
// rates. Who lacked a place queues for that moment by the same arithmetic, each behind the last, so that they do not
// all come back at once and find one place, and finds the place held (promises.h). Coming back early neither helps nor
// loses the promise. What only the deadline refused comes back when the line is short enough, each behind
// the last as well; newcomers may have made it longer by then.
class Admission {
 public:
  explicit Admission(const AdmissionLimits& limits) : limits_(limits) {}

  // `random`: any 64 bits, for the jitter. `shed`: the band takes nobody now but tenants who hold little of it.
  AdmissionAnswer Judge(const WaitingQueue& line, const QueueSpec& spec, const ServiceRates& rates, TimeNs now,
                        uint64_t random, bool shed = false);
  const AdmissionLimits& limits() const { return limits_; }

 private:
  struct OfBand {
    Promises promises;
    TimeNs last = 0;       // the latest moment that was promised to who lacked a place
    TimeNs last_late = 0;  // likewise, to whom only the deadline refused
  };
  Verdict ChoosePlace(const WaitingQueue& line, const QueueSpec& spec, const ServiceRates& rates, TimeNs now) const;
  Verdict Choose(const WaitingQueue& line, const QueueSpec& spec, const ServiceRates& rates, TimeNs now,
                 TimeNs ttft) const;
  TimeNs Wait(const WaitingQueue& line, const QueueSpec& spec, const ServiceRates& rates, TimeNs now,
              const AdmissionAnswer& answer);
  TimeNs Promise(const QueueSpec& spec, const ServiceRates& rates, TimeNs now, TimeNs least, TimeNs* last);
  OfBand& of(Band band) { return bands_[static_cast<size_t>(band)]; }
  const OfBand& of(Band band) const { return bands_[static_cast<size_t>(band)]; }

  const AdmissionLimits limits_;
  std::array<OfBand, kBands> bands_;
};

constexpr TimeNs kLeastRetryAfter = 100 * kNsPerMs;
constexpr TimeNs kLongestRetryAfter = 60 * kNsPerSecond;
// Spreads those who were told the same moment.
constexpr TimeNs kRetryJitter = kNsPerSecond;

// For a caller: code, what happened, what to do; retry_after_ms is rounded up. REQUIRES: a refusal.
Error RefusalError(const AdmissionAnswer& answer, const QueueSpec& spec, TimeNs now);

}  // namespace headrace
