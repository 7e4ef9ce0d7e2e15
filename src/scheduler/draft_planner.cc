#include "scheduler/draft_planner.h"

#include <algorithm>

namespace headrace {
namespace {

// What drafting must promise before it begins: costs and probabilities are estimates.
constexpr double kGainLeast = 1.04;

}  // namespace

DraftPlanner::DraftPlanner(int32_t sequences_max) {
  decodes_.reserve(static_cast<size_t>(sequences_max));
  candidates_.reserve(static_cast<size_t>(sequences_max));
}

void DraftPlanner::Clear() {
  decodes_.clear();
  candidates_.clear();
  load_ = {};
}

void DraftPlanner::Add(const Decode& decode) {
  decodes_.push_back(decode);
  ++load_.rows;
  load_.attended += decode.attended;
}

void DraftPlanner::Push(int32_t decode, int32_t each_max) {
  const Decode& d = decodes_[static_cast<size_t>(decode)];
  if (d.drafts >= std::min(d.offer->count, each_max)) return;
  candidates_.push_back({d.offer->survival[static_cast<size_t>(d.drafts)], decode});
  std::push_heap(candidates_.begin(), candidates_.end());
}

// The likeliest draft first. Drafting at all costs something once, so that the first row is judged with all the others:
// they are given back if together they gain too little.
void DraftPlanner::Choose(int32_t each_max, int32_t rows_max) {
  for (size_t i = 0; i < decodes_.size(); ++i) Push(static_cast<int32_t>(i), each_max);
  if (candidates_.empty()) return;
  double tokens = static_cast<double>(decodes_.size());
  const double plain = tokens / cost_.Of(load_);
  load_.drafts = true;
  double time = cost_.Of(load_);
  for (int32_t rows = 0; rows < rows_max && !candidates_.empty(); ++rows) {
    std::pop_heap(candidates_.begin(), candidates_.end());
    const Candidate likeliest = candidates_.back();
    candidates_.pop_back();
    Decode& decode = decodes_[static_cast<size_t>(likeliest.decode)];
    const double row = cost_.OfRow(decode.attended);
    if (likeliest.survival * time <= row * tokens) break;
    tokens += likeliest.survival;
    time += row;
    ++decode.drafts;
    Push(likeliest.decode, each_max);
  }
  if (tokens / time >= kGainLeast * plain) return;
  for (Decode& decode : decodes_) decode.drafts = 0;
}

}  // namespace headrace
