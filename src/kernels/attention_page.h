// One unit of attention at one page: the state that its steps share.
#pragma once

#include "kernels/attention.h"
#include "kernels/canonical.h"

namespace headrace {

// Slots [begin, end) of a page that a query sees; none where begin >= end. is_first: no earlier page has any.
struct SeenSlots {
  int16_t begin, end;
  bool is_first;
};

// One unit at one page. Queries are in order of row, then head; query i belongs to row i / group_heads.
struct AttentionPage {
  const Attention& op;
  int16_t* q;        // [queries][head_dim]
  float* q_scale;    // [queries]
  float* o;          // [queries][head_dim], running
  float *m, *l;      // [queries], running
  float* p;          // [queries][64]: scores
  int16_t* w;        // [queries][64]: weights
  float *a, *b;      // [queries]: factors of the running output and of this page's integer output
  int16_t* widened;  // [64 * head_dim]: int8 pages as int16, where many queries read them
  int queries;
  bool whole;              // every query sees the whole page, and has seen an earlier one
  const std::byte* ahead;  // what is read next, of a page's size, where few queries leave time to fetch it; or null
  SeenSlots* seen;         // [queries]

  HR_KERNEL_INLINE bool Sees(int i) const { return seen[i].begin < seen[i].end; }

  HR_KERNEL_INLINE void MoveTo(int64_t first_token) {
    const bool was_whole = whole, is_part = op.partials != nullptr;
    const int64_t last_start = op.window > 0 ? op.first_position + op.rows - op.window : 0;
    whole =
        first_token > 0 && !is_part && last_start < first_token && first_token + kPageTokens <= op.first_position + 1;
    if (whole && was_whole) return;
    for (int r = 0, i = 0; r < op.rows; ++r) {
      const int64_t tokens = op.first_position + r + 1;
      const int64_t start = op.window > 0 && tokens > op.window ? tokens - op.window : 0;
      const auto slot = [&](int64_t token) __attribute__((always_inline)) {
        const int64_t at = token - first_token;
        return static_cast<int16_t>(at <= 0 ? 0 : at < kPageTokens ? at : kPageTokens);
      };
      const SeenSlots row{slot(start), slot(tokens), is_part || start >= first_token};
      for (int h = 0; h < op.group_heads; ++h) seen[i++] = row;
    }
  }
};

// Fetches bytes [begin, end) of what is read next.
HR_KERNEL_INLINE void FetchAhead(const AttentionPage& page, int64_t begin, int64_t end) {
  if (page.ahead == nullptr) return;
  for (int64_t b = begin; b < end; b += 64) __builtin_prefetch(page.ahead + b);
}

}  // namespace headrace
