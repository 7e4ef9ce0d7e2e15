// Whether what runs will fit until it ends. All answers grow by a token a step, and those that end give back what they
// have: the pool is fullest just before one of them ends (Gong et al., Past-Future scheduler, ASPLOS 2025). Without it
// a full pool admits what it will soon have to throw away.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kv_cache/block_name.h"

namespace headrace {

class RoomAhead {
 public:
  void Reserve(size_t sequences) { growing_.reserve(sequences); }
  void Clear() { growing_.clear(); }
  // A sequence that has `tokens` in blocks of its own and gets `remaining` more.
  void Add(int64_t tokens, int64_t remaining) { growing_.push_back({remaining, tokens}); }

  // The most that they hold together at any time, in tokens; half a block each is what lies unused in the last ones.
  int64_t PeakTokens() {
    std::ranges::sort(growing_, [](const Growing& a, const Growing& b) { return a.remaining > b.remaining; });
    int64_t held = 0, count = 0, peak = 0;
    for (const Growing& growing : growing_) {
      held += growing.tokens + kBlockTokens / 2;
      peak = std::max(peak, held + ++count * growing.remaining);
    }
    return peak;
  }

 private:
  struct Growing {
    int64_t remaining, tokens;
  };
  std::vector<Growing> growing_;
};

}  // namespace headrace
