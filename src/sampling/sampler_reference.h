// A slow sampler that is obviously right: doubles, libm, a full sort. Only tests include this.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/token_mask.h"
#include "sampling/sampler.h"

namespace headrace {

class SlowSampler {
 public:
  SlowSampler(std::vector<float> logits, const SampleRequest& request) : logits_(std::move(logits)) {
    for (float& x : logits_) x = std::isnan(x) ? -std::numeric_limits<float>::infinity() : x;
    raw_ = logits_;
    Adjust(request);
    allowed_.assign(request.allowed.begin(), request.allowed.end());
    for (size_t t = 0; t < logits_.size(); ++t) {
      if (!Unmasked(static_cast<int32_t>(t))) logits_[t] = -std::numeric_limits<float>::infinity();
    }
    Sort();
    if (order_.empty()) return;
    const SamplingParams& p = request.params;
    if (p.temperature < kGreedyBelow || p.top_p <= 0) order_.resize(1);
    if (p.top_k > 0) order_.resize(std::min(order_.size(), static_cast<size_t>(p.top_k)));
    for (const int32_t t : order_) mass_.push_back(Probability(t, p.temperature));
    double total = 0;
    for (const double m : mass_) total += m;
    double sum = 0;
    for (size_t i = 0; i < order_.size(); ++i) {
      before_.push_back(sum / total);
      sum += mass_[i];
    }
    top_p_ = static_cast<double>(p.top_p), min_p_ = static_cast<double>(p.min_p);
  }

  // Whether `token` may be drawn, with a tolerance where a rounding decides.
  bool Allows(int32_t token) const {
    if (order_.empty()) return token >= 0 && token < static_cast<int32_t>(logits_.size()) && Unmasked(token);
    const auto at = std::find(order_.begin(), order_.end(), token);
    if (at == order_.end()) return false;
    const auto i = static_cast<size_t>(at - order_.begin());
    // Equal probabilities that differ as logits may change places.
    return i == 0 || mass_[i] >= mass_[0] * (1 - 1e-6) ||
           ((top_p_ >= 1 || before_[i] < top_p_ + 2e-6) && mass_[i] >= min_p_ * (1 - 1e-5));
  }

  // The share of each token among those kept.
  std::vector<double> Shares() const {
    std::vector<double> shares(logits_.size());
    double total = 0;
    for (size_t i = 0; i < order_.size(); ++i) {
      if (i > 0 && ((top_p_ < 1 && before_[i] >= top_p_) || mass_[i] < min_p_)) break;
      total += shares[static_cast<size_t>(order_[i])] = mass_[i];
    }
    for (double& s : shares) s /= total;
    return shares;
  }

  double LogProbability(int32_t token) const {
    double max = -std::numeric_limits<double>::infinity(), sum = 0;
    for (const float x : raw_) max = std::max(max, static_cast<double>(x));
    for (const float x : raw_) sum += std::exp(static_cast<double>(x) - max);
    return static_cast<double>(raw_[static_cast<size_t>(token)]) - max - std::log(sum);
  }

 private:
  bool Unmasked(int32_t token) const { return allowed_.empty() || MaskAllows(allowed_, token); }
  void Adjust(const SampleRequest& request) {
    const SamplingParams& p = request.params;
    for (const TokenAdjustment& a : request.adjustments) {
      float& x = logits_[static_cast<size_t>(a.token)];
      if (a.seen) x = x > 0 ? x / p.repetition_penalty : x * p.repetition_penalty;
      if (a.output_count > 0) x = x - p.presence_penalty - p.frequency_penalty * static_cast<float>(a.output_count);
      x = a.bias <= kBanBias ? -std::numeric_limits<float>::infinity() : x + a.bias;
    }
  }
  void Sort() {
    for (size_t t = 0; t < logits_.size(); ++t) {
      if (logits_[t] > -3e38f) order_.push_back(static_cast<int32_t>(t));
    }
    std::sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) {
      const float x = logits_[static_cast<size_t>(a)], y = logits_[static_cast<size_t>(b)];
      return x != y ? x > y : a < b;
    });
  }
  double Probability(int32_t token, float temperature) const {
    const double top = static_cast<double>(logits_[static_cast<size_t>(order_[0])]);
    return std::exp((static_cast<double>(logits_[static_cast<size_t>(token)]) - top) /
                    static_cast<double>(temperature));
  }

  std::vector<float> logits_, raw_;
  std::vector<uint32_t> allowed_;
  std::vector<int32_t> order_;
  std::vector<double> mass_, before_;  // by place in order_
  double top_p_ = 1, min_p_ = 0;
};

}  // namespace headrace
