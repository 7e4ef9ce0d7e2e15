// Attention for every vector instruction set: the algorithm of attention.h over a class L of lanes. All queries of a
// unit (rows x heads of the group) go through a page together, L::kQueries at a time: each load of K or V serves that
// many products.
//
// L is a class of an ISA file's anonymous namespace, so that each instance is local to that file. It has
//   F, I: vectors of kLanes floats and int32;  kLanes: 4, 8 or 16;  kQueries, kVectors: sums of a register block
//   Zero, Set, Load, Store, Add, Sub, Mul, Div, Max, Fma, Abs, ExpBelow88, LargestOf, TreeOf(F[16 / kLanes])
//   Keep(x, begin, end, other): lanes [begin, end) of x, the others of `other`
//   ZeroI, LoadPairs (int16 or int8 as int16), SplatPair, AddDot(acc, pairs, pairs), ToFloat
//   LoadTwice(p): p0 p0 p1 p1 …;  SwapPairs: x1 x0 x3 x2 …;  NegateEven: -x0 x1 -x2 …
//   optional: LargestOfEach, TreeOfEach of kLanes vectors at once
//   StoreShorts(int16_t*, F), (int16_t*, F, F): nearest even
//   StoreInterleaved(pairs, x, place): kLanes shorts to one place of pairs
#pragma once

#include "kernels/attention_vectors.h"

namespace headrace {

// Scores of queries [first, first + N) for tokens [t0, t0 + V * kLanes); slots without a token hold anything.
template <typename L, int N, int V, typename T>
HR_KERNEL_INLINE void ScoreColumns(const AttentionPage& page, int first, const T* k_page, const float* k_scale,
                                   int t0) {
  const int head_dim = page.op.head_dim;
  const int16_t* q = page.q + first * head_dim;
  typename L::I sum[N][V];
  HR_UNROLL for (int n = 0; n < N; ++n) { HR_UNROLL for (int j = 0; j < V; ++j) sum[n][j] = L::ZeroI(); }
  for (int d = 0; d < head_dim; d += 2) {
    const T* k = k_page + d * kPageTokens + 2 * t0;
    if (t0 == 0) FetchAhead(page, int64_t{d} * kPageTokens * sizeof(T), int64_t{d + 2} * kPageTokens * sizeof(T));
    typename L::I keys[V];
    HR_UNROLL for (int j = 0; j < V; ++j) keys[j] = L::LoadPairs(k + 2 * L::kLanes * j);
    HR_UNROLL for (int n = 0; n < N; ++n) {
      const auto x = L::SplatPair(q + n * head_dim + d);
      HR_UNROLL for (int j = 0; j < V; ++j) L::AddDot(sum[n][j], x, keys[j]);
    }
  }
  HR_UNROLL for (int n = 0; n < N; ++n) {
    const auto q_scale = L::Set(page.q_scale[first + n]);
    float* p = page.p + (first + n) * kPageTokens + t0;
    HR_UNROLL for (int j = 0; j < V; ++j) {
      const auto scale = L::Mul(q_scale, L::Load(k_scale + t0 + L::kLanes * j));
      L::Store(p + L::kLanes * j, L::Mul(L::ToFloat(sum[n][j]), scale));
    }
  }
}

// Adds elements [d0, d0 + V * kLanes) of the page's output to the running states of queries [first, first + N).
template <typename L, int N, int V, typename T>
HR_KERNEL_INLINE void ValueColumns(const AttentionPage& page, int first, const T* v_page, int d0) {
  const int head_dim = page.op.head_dim;
  const int16_t* w = page.w + first * kPageTokens;
  typename L::I sum[N][V];
  HR_UNROLL for (int n = 0; n < N; ++n) { HR_UNROLL for (int c = 0; c < V; ++c) sum[n][c] = L::ZeroI(); }
  // Positions rise with the query: the first starts first, the last ends last. What a query in between does not see has
  // the weight 0.
  const int end = page.seen[first + N - 1].end;
  for (int t = page.seen[first].begin & ~1; t < end; t += 2) {
    if (d0 == 0) FetchAhead(page, int64_t{t} * head_dim * sizeof(T), int64_t{t + 2} * head_dim * sizeof(T));
    typename L::I values[V];
    HR_UNROLL for (int c = 0; c < V; ++c) values[c] = L::LoadPairs(v_page + t * head_dim + 2 * (d0 + L::kLanes * c));
    HR_UNROLL for (int n = 0; n < N; ++n) {
      const auto x = L::SplatPair(w + n * kPageTokens + t);
      HR_UNROLL for (int c = 0; c < V; ++c) L::AddDot(sum[n][c], x, values[c]);
    }
  }
  HR_UNROLL for (int n = 0; n < N; ++n) {
    if (!page.Sees(first + n)) continue;
    float* run = page.o + (first + n) * head_dim + d0;
    const auto b = L::Set(page.b[first + n]);
    if (page.seen[first + n].is_first) {
      HR_UNROLL for (int c = 0; c < V; ++c) L::Store(run + L::kLanes * c, L::Mul(L::ToFloat(sum[n][c]), b));
      continue;
    }
    const auto a = L::Set(page.a[first + n]);
    HR_UNROLL for (int c = 0; c < V; ++c) {
      const auto added = L::Mul(L::ToFloat(sum[n][c]), b);
      L::Store(run + L::kLanes * c, L::Fma(L::Load(run + L::kLanes * c), a, added));
    }
  }
}

// Scores, or outputs, of queries [first, first + N).
template <typename L, int N, typename T>
void ScoreBlock(const AttentionPage& page, int first, const T* k_page, const float* k_scale) {
  constexpr int kStep = L::kVectors * L::kLanes;
  for (int t = 0; t < kPageTokens; t += kStep) ScoreColumns<L, N, L::kVectors>(page, first, k_page, k_scale, t);
}
template <typename L, int N, typename T>
void ValueBlock(const AttentionPage& page, int first, const T* v_page, const float*) {
  constexpr int kStep = L::kVectors * L::kLanes;
  int d = 0;
  for (; d + kStep <= page.op.head_dim; d += kStep) ValueColumns<L, N, L::kVectors>(page, first, v_page, d);
  for (; d < page.op.head_dim; d += L::kLanes) ValueColumns<L, N, 1>(page, first, v_page, d);
}

template <typename L, int N>
constexpr int kBlock = N < L::kQueries ? N : L::kQueries;

// Scores, or outputs, of all queries that see any of the page.
template <typename L, typename T, bool kScores>
HR_KERNEL_INLINE void EachBlock(const AttentionPage& page, const T* data, const float* scale) {
  using Fn = void (*)(const AttentionPage&, int, const T*, const float*);
  static_assert(L::kQueries <= 6);
  static constexpr Fn kScore[6] = {ScoreBlock<L, 1, T>,
                                   ScoreBlock<L, kBlock<L, 2>, T>,
                                   ScoreBlock<L, kBlock<L, 3>, T>,
                                   ScoreBlock<L, kBlock<L, 4>, T>,
                                   ScoreBlock<L, kBlock<L, 5>, T>,
                                   ScoreBlock<L, kBlock<L, 6>, T>};
  static constexpr Fn kValue[6] = {ValueBlock<L, 1, T>,
                                   ValueBlock<L, kBlock<L, 2>, T>,
                                   ValueBlock<L, kBlock<L, 3>, T>,
                                   ValueBlock<L, kBlock<L, 4>, T>,
                                   ValueBlock<L, kBlock<L, 5>, T>,
                                   ValueBlock<L, kBlock<L, 6>, T>};
  for (int i = 0; i < page.queries; i += L::kQueries) {
    const int n = page.queries - i < L::kQueries ? page.queries - i : L::kQueries;
    if (page.seen[i].begin >= page.seen[i + n - 1].end) continue;
    (kScores ? kScore : kValue)[n - 1](page, i, data, scale);
  }
}

template <typename L, bool kScores>
HR_KERNEL_INLINE void EachBlockOf(const AttentionPage& page, const std::byte* data, const float* scale) {
  const auto* bytes = reinterpret_cast<const int8_t*>(data);
  if (page.op.kv_type == KvType::kInt16) {
    return EachBlock<L, int16_t, kScores>(page, reinterpret_cast<const int16_t*>(data), scale);
  }
  if (page.queries <= L::kQueries) return EachBlock<L, int8_t, kScores>(page, bytes, scale);
  const int elements = kPageTokens * page.op.head_dim;
  for (int i = 0; i < elements; i += 2 * L::kLanes) L::StorePairs(page.widened + i, L::LoadPairs(bytes + i));
  EachBlock<L, int16_t, kScores>(page, page.widened, scale);
}

template <typename L>
HR_KERNEL_INLINE void KeepPartials(const AttentionPage& page, int64_t at_page) {
  const int head_dim = page.op.head_dim;
  for (int i = 0; i < page.queries; ++i) {
    float* record = page.op.partials + (at_page * page.queries + i) * PartialFloats(head_dim);
    record[0] = page.m[i];
    record[1] = page.l[i];
    record[2] = page.a[i];
    for (int d = 0; d < head_dim; d += L::kLanes)
      L::Store(record + kPartialHead + d, L::Load(page.o + int64_t{i} * head_dim + d));
  }
}

template <typename L>
HR_KERNEL_INLINE void AttendTiles(const Attention& op) {
  const int queries = op.rows * op.group_heads;
  const int64_t most = int64_t{kAttentionRowsMax} * op.group_heads, scalars = most + 16;
  float* at = op.scratch;
  const auto take = [&](int64_t floats) __attribute__((always_inline)) {
    float* taken = at;
    at += floats;
    return taken;
  };
  SeenSlots seen[kAttentionRowsMax * kGroupHeadsMax];
  AttentionPage page{op,
                     reinterpret_cast<int16_t*>(take(most * op.head_dim / 2)),
                     take(scalars),
                     take(most * op.head_dim),
                     take(scalars),
                     take(scalars),
                     take(most * kPageTokens),
                     reinterpret_cast<int16_t*>(take(most * kPageTokens / 2)),
                     take(scalars),
                     take(scalars),
                     reinterpret_cast<int16_t*>(take(int64_t{kPageTokens} * op.head_dim / 2)),
                     queries,
                     false,
                     nullptr,
                     seen};
  const int64_t first = op.first_position + 1;
  int64_t end = op.first_position + op.rows, token = op.window > 0 && first > op.window ? first - op.window : 0;
  token -= token % kPageTokens;
  if (op.partials != nullptr) {
    token = op.first_page * kPageTokens > token ? op.first_page * kPageTokens : token;
    end = op.end_page * kPageTokens < end ? op.end_page * kPageTokens : end;
  }
  if (token >= end) return;
  const bool few = queries <= L::kQueries;
  if (few) {
    page.ahead = op.k_pages + op.block_table[token / kPageTokens] * op.block_stride;
    FetchAhead(page, 0, KvPageBytes(op.kv_type, op.head_dim));
  }
  float scaled[kHeadDimMax];
  const bool is_int8 = op.kv_type == KvType::kInt8;
  const auto softmax_scale = L::Set(op.softmax_scale / static_cast<float>(is_int8 ? SpreadBlock(op.head_dim) : 1));
  for (int i = 0; i < queries; ++i) {
    const float* q = op.queries + i / op.group_heads * op.query_stride + int64_t{i % op.group_heads} * op.head_dim;
    for (int d = 0; d < op.head_dim; d += L::kLanes) L::Store(scaled + d, L::Mul(L::Load(q + d), softmax_scale));
    if (is_int8) SpreadVector<L>(scaled, op.head_dim, scaled);
    page.q_scale[i] = LengthOf<L>(scaled, op.head_dim) / kLength;
    QuantiseVector<L>(scaled, op.head_dim, page.q_scale[i], page.q + i * op.head_dim);
  }
  const int64_t scales = int64_t{KvElementBytes(op.kv_type)} * kPageTokens * op.head_dim;
  for (; token < end; token += kPageTokens) {
    page.MoveTo(token);
    const int64_t at_page = token / kPageTokens, block = op.block_table[at_page] * op.block_stride;
    const std::byte *k = op.k_pages + block, *v = op.v_pages + block;
    page.ahead = few ? v : nullptr;
    EachBlockOf<L, true>(page, k, reinterpret_cast<const float*>(k + scales));
    for (int i = 0; i < queries; i += L::kLanes) SoftmaxBlock<L>(page, i, reinterpret_cast<const float*>(v + scales));
    page.ahead =
        few && token + kPageTokens < end ? op.k_pages + op.block_table[at_page + 1] * op.block_stride : nullptr;
    EachBlockOf<L, false>(page, v, nullptr);
    if (op.partials != nullptr) KeepPartials<L>(page, at_page);
  }
  for (int i = 0; i < queries && op.partials == nullptr; ++i) {
    float* out = op.out + i / op.group_heads * op.out_stride + int64_t{i % op.group_heads} * op.head_dim;
    const auto sum = L::Set(page.l[i]);
    for (int d = 0; d < op.head_dim; d += L::kLanes)
      L::Store(out + d, L::Div(L::Load(page.o + int64_t{i} * op.head_dim + d), sum));
  }
}

template <typename L>
HR_KERNEL_INLINE void MergeTiles(const AttentionMerge& op) {
  float o[kHeadDimMax];
  const int64_t head_floats = PartialFloats(op.head_dim);
  for (int h = 0; h < op.group_heads; ++h) {
    float m = 0, l = 0;
    for (int64_t p = op.first_page; p < op.end_page; ++p) {
      const float* record = op.partials + (p * op.group_heads + h) * head_floats;
      const float* dots = record + kPartialHead;
      const bool is_first = p == op.first_page;
      const float top = is_first || record[0] > m ? record[0] : m;
      const float a = is_first ? 0.0f : CanonicalExp(m - top), b = is_first ? 1.0f : CanonicalExp(record[0] - top);
      l = is_first ? record[1] : FusedMulAdd(l, a, record[1] * b);
      m = top;
      const auto keep = L::Set(a), add = L::Set(is_first ? record[2] : record[2] * b);
      for (int d = 0; d < op.head_dim; d += L::kLanes) {
        const auto added = L::Mul(L::Load(dots + d), add);
        L::Store(o + d, is_first ? added : L::Fma(L::Load(o + d), keep, added));
      }
    }
    const auto sum = L::Set(l);
    for (int d = 0; d < op.head_dim; d += L::kLanes)
      L::Store(op.out + int64_t{h} * op.head_dim + d, L::Div(L::Load(o + d), sum));
  }
}

}  // namespace headrace
