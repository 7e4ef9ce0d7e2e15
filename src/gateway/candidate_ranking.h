// `best_of`: the candidates of each prompt, whole, and the n of them with the highest mean log-probability of the
// generated tokens; of equals the earlier one. One request, one thread.
#pragma once

#include <vector>

#include "gateway/backend.h"

namespace headrace {

class CandidateRanking {
 public:
  struct Choice {
    ChoiceDelta whole;
    FinishReason reason = FinishReason::kStop;
  };

  // REQUIRES: 1 <= n <= best_of, the number of candidates of each prompt.
  CandidateRanking(size_t prompts, int n, int best_of);

  void Add(const ChoiceDelta& delta);
  void End(int candidate, FinishReason reason);
  // All have ended: the choices, prompt-major, best first, numbered prompt * n + i. Once.
  std::vector<Choice> TakeBest();

 private:
  struct Candidate {
    Choice choice;
    double logprobs = 0;  // sum over the generated tokens
    double Mean() const { return choice.whole.tokens > 0 ? logprobs / choice.whole.tokens : 0; }
  };
  const size_t n_, best_of_;
  std::vector<Candidate> candidates_;
};

}  // namespace headrace
