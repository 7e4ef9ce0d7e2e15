// Causal attention of one KV head over 64-token pages (Dao et al., FlashAttention, 2022, for the running softmax), with
// products of 16-bit integers: their sums are exact, so that no order of summation matters, and they run at twice the
// rate of floats.
//
// A page holds 64 tokens of one (layer, KV head): quants, then one f32 scale a token; value = scale * quant. The quants
// are int16 or int8 (KvType), in pairs: K as [head_dim / 2][64][2], so that a lane is a token, V as
// [64 / 2][head_dim][2], so that a lane is an element. K and V are read only in this stored form, also for the current
// chunk.
//
// The bits. Quantise(x, scale): quant_i = nearest-even(x_i * inverse), inverse = scale >= kSmallestScaled ? 1 / scale :
// 0. By length: scale = sqrt(16-lane sum of x_i^2) / kLength, so that the product of two such vectors fits 32 bits
// whatever their size (Cauchy-Schwarz). By size: scale = max |x_i| / most.
//   K of a token: by length, of int8 Spread(k) by size 127 (key_spread.h);  V: by size kLength or 127
//   Q = q * softmax_scale, with int8 Spread(q * (softmax_scale / block)): by length
// For each query head and page, tokens that the query does not see left out (after its position, before its window):
//   score_t = float(sum of Q_d * K_td) * (Q.scale * K_t.scale)
//   m = max score;  p_t = exp(score_t - m);  l = 16-lane sum of p over the page (lane j takes t = j, j+16, j+32, j+48)
//   W: w_t = p_t * V_t.scale, +0 where left out, scale = (16-lane sum of w) / kLength;  dot_d = sum of W_t * V_td
// Pages are merged in order. The first: m, l, o_d = float(dot_d) * W.scale. Then M = max(m_run, m), a = exp(m_run - M),
// b = exp(m - M), l_run = fma(l_run, a, l * b), o_run = fma(o_run, a, float(dot_d) * (W.scale * b)). At the end
// out_d = o_d / l.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace {

constexpr int kPageTokens = 64;
constexpr int kHeadDimMax = 256;
constexpr int kGroupHeadsMax = 16;     // query heads of one KV head
constexpr int kAttentionRowsMax = 16;  // query rows of one work unit

// Lengths, sizes and sums in steps of a quant; 32,767 less what rounding may add.
constexpr float kLength = 32700;
constexpr float kSmallestScaled = 1e-30f;

enum class KvType : uint8_t { kInt16, kInt8 };

constexpr int KvElementBytes(KvType type) { return type == KvType::kInt16 ? 2 : 1; }
// Bytes of one page of K or of V; a multiple of 64.
constexpr int64_t KvPageBytes(KvType type, int head_dim) {
  return kPageTokens * (int64_t{KvElementBytes(type)} * head_dim + int64_t{sizeof(float)});
}

struct Attention {
  const float* queries = nullptr;  // row r, head h of the group: queries + r * query_stride + h * head_dim
  int64_t query_stride = 0;
  float* out = nullptr;  // same shape
  int64_t out_stride = 0;
  int rows = 0;  // <= kAttentionRowsMax, at positions first_position, +1, …
  int64_t first_position = 0;
  int64_t window = 0;   // tokens that a query sees, its own included; 0: all up to its own
  int group_heads = 0;  // query heads that share this KV head
  int head_dim = 0;     // multiple of 16
  float softmax_scale = 0;
  KvType kv_type = KvType::kInt16;
  const int32_t* block_table = nullptr;  // block of each page of the sequence; those before the window are not read
  const std::byte* k_pages = nullptr;    // + block * block_stride: this layer's and KV head's page
  const std::byte* v_pages = nullptr;
  int64_t block_stride = 0;  // in bytes
  // A part of a long sequence's pages, of one row: pages [first_page, end_page) are not merged but left in `partials`
  // for AttentionMerge. Null: all pages.
  int64_t first_page = 0, end_page = 0;
  float* partials = nullptr;
  // The running state of this unit, 64-byte aligned. Sized by AttentionScratchFloats().
  float* scratch = nullptr;
};

// What a page gives a query head: m, l, W.scale, and from kPartialHead on float(dot_d).
constexpr int kPartialHead = 16;
constexpr int64_t PartialFloats(int head_dim) { return kPartialHead + head_dim; }

// Merges what units left of pages [first_page, end_page), in order.
struct AttentionMerge {
  const float* partials = nullptr;  // [page][group_heads][PartialFloats(head_dim)]
  int64_t first_page = 0, end_page = 0;
  int group_heads = 0;
  int head_dim = 0;
  float* out = nullptr;  // [group_heads][head_dim]
};

// One token's K and V of one head, to be stored in a slot of its pages.
struct KvSlot {
  const float* k = nullptr;
  const float* v = nullptr;
  int head_dim = 0;
  int slot = 0;  // position within the page
  KvType type = KvType::kInt16;
  std::byte* k_page = nullptr;
  std::byte* v_page = nullptr;
};

// Turns pairs of a head's elements by the angles of its position (Su et al., RoFormer, 2021): (a, b) becomes
// (a * cosine - b * sine, a * sine + b * cosine), each product and sum rounded. Pairs are neighbours, or i and
// i + pairs.
struct Rotation {
  float* x = nullptr;
  const float* cosine = nullptr;  // [pairs]
  const float* sine = nullptr;
  int pairs = 0;
  bool neighbours = false;
};

// Floats of scratch that one work unit needs: quantised queries, running outputs, scores and weights of a page and a
// few scalars of each query (16 more, so that vectors of them may be read), and one page as int16.
constexpr int64_t AttentionScratchFloats(int group_heads, int head_dim) {
  const int64_t queries = int64_t{kAttentionRowsMax} * group_heads;
  return queries * (head_dim / 2 + head_dim + kPageTokens + kPageTokens / 2) + 5 * (queries + 16) +
         int64_t{kPageTokens / 2} * head_dim;
}

}  // namespace headrace
