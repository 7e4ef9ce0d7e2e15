#include "scheduler/decode_cost.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace headrace {
namespace {

// Shares of a step of one row. SmolLM2-135M Q4_1 on two threads.
constexpr std::array<double, 4> kElsewhere = {0.82, 0.06, 0.11, 0.01};
// Steps that each of these is worth: little for a step as such, whose time every step tells; more for what is alike in
// most steps, so that twenty noisy ones do not move it.
constexpr std::array<double, 4> kElsewhereWeight = {0.3, 3, 3, 30};
// A step counts for 1 / e after 300 more: some seconds, in which contexts grow and neighbours come and go.
constexpr double kKeep = 1 - 1.0 / 300;
// A step that another process has delayed is no measure of its rows.
constexpr double kDelayedAbove = 1.5;

double Dot(const std::array<double, 4>& a, const std::array<double, 4>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

DecodeCost::DecodeCost() : costs_(kElsewhere) {}

DecodeCost::Terms DecodeCost::TermsOf(const DecodeLoad& load) {
  return {1, load.drafts ? 1.0 : 0.0, static_cast<double>(load.rows), static_cast<double>(load.attended) / 1000};
}

double DecodeCost::Of(const DecodeLoad& load) const { return Dot(costs_, TermsOf(load)); }

double DecodeCost::OfRow(int64_t attended) const {
  return costs_[2] + costs_[3] * static_cast<double>(attended) / 1000;
}

void DecodeCost::Observe(const DecodeLoad& load, TimeNs time) {
  if (time <= 0 || load.rows <= 0) return;
  const Terms terms = TermsOf(load);
  double t = static_cast<double>(time);
  if (scales_ > 0) t = std::min(t, kDelayedAbove * Of(load));
  scales_ = scales_ * kKeep + 1;
  scale_ += (t / Dot(kElsewhere, terms) - scale_) / scales_;
  for (size_t i = 0; i < kTerms; ++i) {
    for (size_t j = 0; j < kTerms; ++j) products_[i][j] = products_[i][j] * kKeep + terms[i] * terms[j];
    times_[i] = times_[i] * kKeep + terms[i] * t;
  }
  Solve();
}

// Gauss's elimination; the weights on the diagonal keep it regular.
void DecodeCost::Solve() {
  std::array<Terms, kTerms> a = products_;
  Terms b = times_;
  for (size_t i = 0; i < kTerms; ++i) {
    a[i][i] += kElsewhereWeight[i];
    b[i] += kElsewhereWeight[i] * kElsewhere[i] * scale_;
  }
  for (size_t i = 0; i < kTerms; ++i) {
    for (size_t k = i + 1; k < kTerms; ++k) {
      const double factor = a[k][i] / a[i][i];
      for (size_t j = i; j < kTerms; ++j) a[k][j] -= factor * a[i][j];
      b[k] -= factor * b[i];
    }
  }
  for (size_t i = kTerms; i-- > 0;) {
    double rest = b[i];
    for (size_t j = i + 1; j < kTerms; ++j) rest -= a[i][j] * costs_[j];
    costs_[i] = rest / a[i][i];
  }
  // Noise may say that work is free or saves time.
  constexpr double kLeast = 0.05;
  for (size_t i = 0; i < kTerms; ++i) costs_[i] = std::max(costs_[i], kLeast * kElsewhere[i] * scale_);
}

}  // namespace headrace
