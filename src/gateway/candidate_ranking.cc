#include "gateway/candidate_ranking.h"

#include <algorithm>
#include <utility>

namespace headrace {

CandidateRanking::CandidateRanking(size_t prompts, int n, int best_of)
    : n_(static_cast<size_t>(n)), best_of_(static_cast<size_t>(best_of)), candidates_(prompts * best_of_) {}

void CandidateRanking::Add(const ChoiceDelta& delta) {
  Candidate& candidate = candidates_[static_cast<size_t>(delta.index)];
  ChoiceDelta& whole = candidate.choice.whole;
  whole.text += delta.text;
  whole.tokens += delta.tokens;
  whole.logprobs.insert(whole.logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
  // In front of them may be those of an echoed prompt.
  const size_t generated = std::min(delta.logprobs.size(), static_cast<size_t>(delta.tokens));
  for (size_t i = delta.logprobs.size() - generated; i < delta.logprobs.size(); ++i)
    candidate.logprobs += std::max(delta.logprobs[i].logprob.value_or(0), kLogprobFloor);
}

void CandidateRanking::End(int candidate, FinishReason reason) {
  candidates_[static_cast<size_t>(candidate)].choice.reason = reason;
}

std::vector<CandidateRanking::Choice> CandidateRanking::TakeBest() {
  std::vector<Choice> best;
  for (size_t first = 0; first < candidates_.size(); first += best_of_) {
    std::vector<std::pair<double, size_t>> order;
    for (size_t i = first; i < first + best_of_; ++i) order.emplace_back(-candidates_[i].Mean(), i);
    std::ranges::sort(order);
    for (size_t i = 0; i < n_; ++i) {
      best.push_back(std::move(candidates_[order[i].second].choice));
      best.back().whole.index = static_cast<int>(best.size()) - 1;
    }
  }
  return best;
}

}  // namespace headrace
