#include "scheduler/prompt_budget.h"

#include <algorithm>

namespace headrace {
namespace {

// Fewer say little.
constexpr double kRowsKnown = 32;
// A step that another process has delayed is no measure of its rows.
constexpr double kDelayedAbove = 2;

}  // namespace

// Of rows alone a row seems dear when they are few, since the step as such is in it: known well enough to begin with.
double PromptBudget::RowNs() const {
  const FadingRate& known = beside_.measure() >= kRowsKnown ? beside_ : alone_;
  return known.measure() >= kRowsKnown ? known.rate() : 0;
}

int64_t PromptBudget::Rows(TimeNs decodes, bool brief) const {
  double target = target_ > 0
                      ? static_cast<double>(target_)
                      : std::max(static_cast<double>(kShortestItl), kItlOverDecodes * static_cast<double>(decodes));
  if (brief)
    target =
        std::min(target, std::max(static_cast<double>(kBriefItl), kBriefOverDecodes * static_cast<double>(decodes)));
  const double row = RowNs();
  const double rows = row > 0 ? (target - static_cast<double>(decodes)) / row : 0;
  const auto steps = static_cast<int64_t>(std::clamp(rows, 0.0, 1e6)) / kPromptRowsStep;
  return std::max<int64_t>(1, steps) * kPromptRowsStep;
}

void PromptBudget::Observe(TimeNs decodes, int64_t rows, TimeNs time) {
  if (rows <= 0 || time <= 0) return;
  const auto count = static_cast<double>(rows);
  double ns = std::max(0.0, static_cast<double>(time - decodes));
  if (const double row = RowNs(); row > 0 && decodes > 0) ns = std::min(ns, kDelayedAbove * row * count);
  (decodes > 0 ? beside_ : alone_).Add(ns, count);
}

}  // namespace headrace
