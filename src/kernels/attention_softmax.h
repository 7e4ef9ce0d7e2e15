// From the scores of a page to the weights of its values and the running states, over a class L of lanes
// (attention_tiles.h).
#pragma once

#include "kernels/attention_page.h"

namespace headrace {

HR_KERNEL_INLINE float InverseOf(float scale) { return scale >= kSmallestScaled ? 1.0f / scale : 0.0f; }

// Unscaled weights of one query over the page, to p. kWhole: it sees all 64 tokens.
template <typename L, bool kWhole>
HR_KERNEL_INLINE void Softmax(float* p, const float* v_scale, int begin, int end, float* m, float* l, float* w_sum) {
  constexpr int kVectors = kPageTokens / L::kLanes, kSums = 16 / L::kLanes;
  typename L::F score[kVectors], sum[kSums], weights[kSums];
  const auto lowest = L::Set(-3.402823466e38f);
  HR_UNROLL for (int j = 0; j < kVectors; ++j) {
    score[j] = L::Load(p + L::kLanes * j);
    if constexpr (!kWhole) score[j] = L::Keep(score[j], begin - L::kLanes * j, end - L::kLanes * j, lowest);
  }
  auto top = score[0];
  HR_UNROLL for (int j = 1; j < kVectors; ++j) top = L::Max(top, score[j]);
  *m = L::LargestOf(top);
  HR_UNROLL for (int j = 0; j < kSums; ++j) sum[j] = weights[j] = L::Zero();
  const auto by = L::Set(*m);
  HR_UNROLL for (int j = 0; j < kVectors; ++j) {
    auto e = L::ExpBelow88(L::Sub(score[j], by));
    auto weight = L::Mul(e, L::Load(v_scale + L::kLanes * j));
    if constexpr (!kWhole) {
      e = L::Keep(e, begin - L::kLanes * j, end - L::kLanes * j, L::Zero());
      weight = L::Keep(weight, begin - L::kLanes * j, end - L::kLanes * j, L::Zero());
    }
    sum[j % kSums] = L::Add(sum[j % kSums], e);
    weights[j % kSums] = L::Add(weights[j % kSums], weight);
    L::Store(p + L::kLanes * j, weight);
  }
  *l = L::TreeOf(sum);
  *w_sum = L::TreeOf(weights);
}

// The largest lane of each of kLanes vectors, and the sum of each by the tree.
template <typename L>
HR_KERNEL_INLINE typename L::F LargestOfEach(const typename L::F (&v)[L::kLanes]) {
  if constexpr (requires { L::LargestOfEach(v); }) {
    return L::LargestOfEach(v);
  } else {
    float each[L::kLanes];
    for (int i = 0; i < L::kLanes; ++i) each[i] = L::LargestOf(v[i]);
    return L::Load(each);
  }
}
template <typename L, int S>
HR_KERNEL_INLINE typename L::F TreeOfEach(const typename L::F (&v)[L::kLanes][S]) {
  if constexpr (requires { L::TreeOfEach(v); }) {
    return L::TreeOfEach(v);
  } else {
    float each[L::kLanes];
    for (int i = 0; i < L::kLanes; ++i) each[i] = L::TreeOf(v[i]);
    return L::Load(each);
  }
}

// Softmax of kLanes queries that see the whole page, reduced together.
template <typename L>
HR_KERNEL_INLINE void WholeSoftmaxes(float* scores, const float* v_scale, float* m, float* l, float* w_sum) {
  constexpr int kVectors = kPageTokens / L::kLanes, kSums = 16 / L::kLanes;
  typename L::F top[L::kLanes], sum[L::kLanes][kSums], weights[L::kLanes][kSums];
  for (int i = 0; i < L::kLanes; ++i) {
    const float* p = scores + i * kPageTokens;
    top[i] = L::Load(p);
    HR_UNROLL for (int j = 1; j < kVectors; ++j) top[i] = L::Max(top[i], L::Load(p + L::kLanes * j));
  }
  L::Store(m, LargestOfEach<L>(top));
  for (int i = 0; i < L::kLanes; ++i) {
    float* p = scores + i * kPageTokens;
    const auto by = L::Set(m[i]);
    typename L::F e_sum[kSums], w[kSums];
    HR_UNROLL for (int j = 0; j < kSums; ++j) e_sum[j] = w[j] = L::Zero();
    HR_UNROLL for (int j = 0; j < kVectors; ++j) {
      const auto e = L::ExpBelow88(L::Sub(L::Load(p + L::kLanes * j), by));
      const auto weight = L::Mul(e, L::Load(v_scale + L::kLanes * j));
      e_sum[j % kSums] = L::Add(e_sum[j % kSums], e);
      w[j % kSums] = L::Add(w[j % kSums], weight);
      L::Store(p + L::kLanes * j, weight);
    }
    HR_UNROLL for (int j = 0; j < kSums; ++j) {
      sum[i][j] = e_sum[j];
      weights[i][j] = w[j];
    }
  }
  L::Store(l, TreeOfEach<L>(sum));
  L::Store(w_sum, TreeOfEach<L>(weights));
}

// Weights of queries [first, first + kLanes) and how the page joins their running states; queries beyond the last are
// scratch.
template <typename L>
HR_KERNEL_INLINE void SoftmaxBlock(const AttentionPage& page, int first, const float* v_scale) {
  float m[L::kLanes], l[L::kLanes], w_sum[L::kLanes], w_scale[L::kLanes];
  const int n = page.queries - first < L::kLanes ? page.queries - first : L::kLanes;
  bool whole = n == L::kLanes;
  for (int i = 0; i < n; ++i) whole &= page.seen[first + i].begin == 0 && page.seen[first + i].end == kPageTokens;
  if (whole) WholeSoftmaxes<L>(page.p + first * kPageTokens, v_scale, m, l, w_sum);
  for (int i = 0; i < L::kLanes && !whole; ++i) {
    const int begin = i < n ? page.seen[first + i].begin : 0, end = i < n ? page.seen[first + i].end : 0;
    float* p = page.p + (first + i) * kPageTokens;
    m[i] = l[i] = w_sum[i] = 0;
    if (begin == 0 && end == kPageTokens) {
      Softmax<L, true>(p, v_scale, begin, end, m + i, l + i, w_sum + i);
    } else if (begin < end) {
      Softmax<L, false>(p, v_scale, begin, end, m + i, l + i, w_sum + i);
    }
  }
  const auto new_scale = L::Div(L::Load(w_sum), L::Set(kLength));
  L::Store(w_scale, new_scale);
  float inverse[L::kLanes];
  L::Store(inverse, L::Div(L::Set(1.0f), new_scale));
  for (int i = 0; i < n; ++i) {
    if (!page.Sees(first + i)) continue;
    const auto factor = L::Set(w_scale[i] >= kSmallestScaled ? inverse[i] : 0.0f);
    for (int j = 0; j < kPageTokens; j += 2 * L::kLanes) {
      const int64_t at = int64_t{first + i} * kPageTokens + j;
      const float* p = page.p + at;
      L::StoreShorts(page.w + at, L::Mul(L::Load(p), factor), L::Mul(L::Load(p + L::kLanes), factor));
    }
  }
  if (page.op.partials != nullptr) {  // merged later: the integer output as it is
    for (int i = 0; i < n; ++i) {
      page.m[first + i] = m[i];
      page.l[first + i] = l[i];
      page.a[first + i] = w_scale[i];
      page.b[first + i] = 1;
    }
    return;
  }
  const auto new_m = L::Load(m), new_l = L::Load(l), run_m = L::Load(page.m + first);
  const auto top = L::Max(new_m, run_m);
  const auto a = L::ExpBelow88(L::Sub(run_m, top)), b = L::ExpBelow88(L::Sub(new_m, top));
  const auto sum = L::Fma(L::Load(page.l + first), a, L::Mul(new_l, b));
  if (n == L::kLanes && page.Sees(first) && page.Sees(first + n - 1) && !page.seen[first + n - 1].is_first) {
    L::Store(page.m + first, top);
    L::Store(page.l + first, sum);
    L::Store(page.a + first, a);
    return L::Store(page.b + first, L::Mul(new_scale, b));
  }
  float merged[4][L::kLanes];
  L::Store(merged[0], top);
  L::Store(merged[1], sum);
  L::Store(merged[2], a);
  L::Store(merged[3], L::Mul(new_scale, b));
  for (int i = 0; i < n; ++i) {
    if (!page.Sees(first + i)) continue;
    const bool is_first = page.seen[first + i].is_first;
    page.m[first + i] = is_first ? m[i] : merged[0][i];
    page.l[first + i] = is_first ? l[i] : merged[1][i];
    page.a[first + i] = merged[2][i];
    page.b[first + i] = is_first ? w_scale[i] : merged[3][i];
  }
}

}  // namespace headrace
