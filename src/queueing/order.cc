#include "queueing/order.h"

#include <algorithm>

namespace headrace {
namespace {

int EffectiveBand(const OrderKey& key) {
  const int band = static_cast<int>(key.band);
  const int floor = std::min(band, static_cast<int>(Band::kHigh));
  return std::max(floor, band - static_cast<int>(std::min<TimeNs>(key.waited / kBandAgeing, kBands)));
}

int64_t AgedWork(const OrderKey& key) {
  return key.remaining_tokens - key.waited / kNsPerMs * kAgeingTokensPerSecond / 1000;
}

}  // namespace

bool GoesBefore(const OrderKey& a, const OrderKey& b) {
  const int band_a = EffectiveBand(a), band_b = EffectiveBand(b);
  if (band_a != band_b) return band_a < band_b;
  const int64_t work_a = AgedWork(a), work_b = AgedWork(b);
  if (work_a != work_b) return work_a < work_b;
  return a.sequence < b.sequence;
}

int64_t RetryAfterMs(int64_t tokens_ahead, double tokens_per_second) {
  constexpr double kLeastMs = 1000, kMostMs = 60'000;
  if (tokens_per_second <= 0) return static_cast<int64_t>(kLeastMs);
  return static_cast<int64_t>(
      std::clamp(static_cast<double>(tokens_ahead) / tokens_per_second * 1000.0, kLeastMs, kMostMs));
}

}  // namespace headrace
