// Causal attention of one KV head over 64-token pages (Dao et al., FlashAttention, 2022, for the running softmax).
//
// A page holds 64 tokens of one (layer, KV head) as f16: K as [head_dim][64] so that a lane is a token, V as
// [64][head_dim] so that a lane is an element. K and V are read only in this stored form, also for the current chunk.
//
// The bits, for each query head and page, tokens beyond the query's position left out:
//   score_t = fma over d in order (q_d * softmax_scale, K[d][t]), from +0;  m = max;  p_t = exp(score_t - m)
//   l = 16-lane sum of p over the page (lane j takes t = j, j+16, j+32, j+48), p = +0 where left out
//   o_d = fma over t in order (p_t, V[t][d]), from +0
// Pages are merged in order: the first is copied; then M = max(m_run, m), a = exp(m_run - M), b = exp(m - M),
// l_run = fma(l_run, a, l * b), o_run = fma(o_run, a, o * b). At the end out_d = o_d / l.
#pragma once

#include <cstdint>

namespace headrace {

constexpr int kPageTokens = 64;
constexpr int kHeadDimMax = 256;
constexpr int kGroupHeadsMax = 16;     // query heads of one KV head
constexpr int kAttentionRowsMax = 16;  // query rows of one work unit

struct Attention {
  const float* queries = nullptr;  // row r, head h of the group: queries + r * query_stride + h * head_dim
  int64_t query_stride = 0;
  float* out = nullptr;  // same shape
  int64_t out_stride = 0;
  int rows = 0;  // <= kAttentionRowsMax, at positions first_position, +1, …
  int64_t first_position = 0;
  int group_heads = 0;  // query heads that share this KV head
  int head_dim = 0;     // multiple of 16
  float softmax_scale = 0;
  const int32_t* block_table = nullptr;  // block of each page of the sequence
  const uint16_t* k_pages = nullptr;     // + block * block_stride: this layer's and KV head's page
  const uint16_t* v_pages = nullptr;
  int64_t block_stride = 0;  // in elements
  // The running state of this unit, one per row and head. Sized by AttentionScratchFloats().
  float* scratch = nullptr;
};

// Floats of scratch that one work unit needs: scaled queries, running outputs, scores of a page and a few scalars of
// each query (16 floats each at least, so that vectors of them may be read), and one page as floats.
constexpr int64_t AttentionScratchFloats(int group_heads, int head_dim) {
  return int64_t{kAttentionRowsMax} * group_heads * (2 * head_dim + kPageTokens + 16) +
         4 * kAttentionRowsMax * kGroupHeadsMax + int64_t{kPageTokens} * head_dim;
}

}  // namespace headrace
