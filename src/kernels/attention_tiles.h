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
//   StoreShorts(int16_t*, F): nearest even;  StoreInterleaved(pairs, x, place): kLanes shorts to one place of pairs
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
  bool whole;  // every query sees the whole page, and has seen an earlier one
  SeenSlots seen[kAttentionRowsMax * kGroupHeadsMax];

  HR_KERNEL_INLINE bool Sees(int i) const { return seen[i].begin < seen[i].end; }

  HR_KERNEL_INLINE void MoveTo(int64_t first_token) {
    const bool was_whole = whole;
    const int64_t last_start = op.window > 0 ? op.first_position + op.rows - op.window : 0;
    whole = first_token > 0 && last_start < first_token && first_token + kPageTokens <= op.first_position + 1;
    if (whole && was_whole) return;
    for (int r = 0, i = 0; r < op.rows; ++r) {
      const int64_t tokens = op.first_position + r + 1;
      const int64_t start = op.window > 0 && tokens > op.window ? tokens - op.window : 0;
      const auto slot = [&](int64_t token) __attribute__((always_inline)) {
        const int64_t at = token - first_token;
        return static_cast<int16_t>(at <= 0 ? 0 : at < kPageTokens ? at : kPageTokens);
      };
      const SeenSlots row{slot(start), slot(tokens), start >= first_token};
      for (int h = 0; h < op.group_heads; ++h) seen[i++] = row;
    }
  }
};

template <typename L>
HR_KERNEL_INLINE float SizeOf(const float* x, int n) {
  typename L::F top = L::Zero();
  for (int i = 0; i < n; i += L::kLanes) top = L::Max(top, L::Abs(L::Load(x + i)));
  return L::LargestOf(top);
}

template <typename L>
HR_KERNEL_INLINE float LengthOf(const float* x, int n) {
  constexpr int kSums = 16 / L::kLanes;
  typename L::F sum[kSums];
  HR_UNROLL for (int j = 0; j < kSums; ++j) sum[j] = L::Zero();
  for (int i = 0; i < n; i += 16) {
    HR_UNROLL for (int j = 0; j < kSums; ++j) {
      const auto v = L::Load(x + i + L::kLanes * j);
      sum[j] = L::Fma(v, v, sum[j]);
    }
  }
  return __builtin_sqrtf(L::TreeOf(sum));
}

HR_KERNEL_INLINE float InverseOf(float scale) { return scale >= kSmallestScaled ? 1.0f / scale : 0.0f; }

template <typename L>
HR_KERNEL_INLINE void QuantiseVector(const float* x, int n, float scale, int16_t* quants) {
  const auto inverse = L::Set(InverseOf(scale));
  for (int i = 0; i < n; i += L::kLanes) L::StoreShorts(quants + i, L::Mul(L::Load(x + i), inverse));
}

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

// Weights of queries [first, first + kLanes) and how the page joins their running states; queries beyond the last are
// scratch.
template <typename L>
HR_KERNEL_INLINE void SoftmaxBlock(const AttentionPage& page, int first, const float* v_scale) {
  float m[L::kLanes], l[L::kLanes], w_sum[L::kLanes], w_scale[L::kLanes];
  const int n = page.queries - first < L::kLanes ? page.queries - first : L::kLanes;
  for (int i = 0; i < L::kLanes; ++i) {
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
  for (int i = 0; i < n; ++i) {
    if (!page.Sees(first + i)) continue;
    const auto factor = L::Set(InverseOf(w_scale[i]));
    for (int j = 0; j < kPageTokens; j += L::kLanes) {
      const int64_t at = int64_t{first + i} * kPageTokens + j;
      L::StoreShorts(page.w + at, L::Mul(L::Load(page.p + at), factor));
    }
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

// Calls Block for all queries that see any of the page.
template <typename L, typename T, bool kScores>
HR_KERNEL_INLINE void EachBlock(const AttentionPage& page, const T* data, const float* scale) {
  using Fn = void (*)(const AttentionPage&, int, const T*, const float*);
  static constexpr Fn kScore[6] = {
      ScoreBlock<L, 1, T>,
      ScoreBlock < L,
      L::kQueries < 2 ? 1 : 2,
      T >,
      ScoreBlock < L,
      L::kQueries < 3 ? 1 : 3,
      T >,
      ScoreBlock < L,
      L::kQueries < 4 ? 1 : 4,
      T >
      , ScoreBlock < L, L::kQueries < 5 ? 1 : 5, T >, ScoreBlock < L, L::kQueries < 6 ? 1 : 6, T > };
  static constexpr Fn kValue[6] = {
      ValueBlock<L, 1, T>,
      ValueBlock < L,
      L::kQueries < 2 ? 1 : 2,
      T >,
      ValueBlock < L,
      L::kQueries < 3 ? 1 : 3,
      T >,
      ValueBlock < L,
      L::kQueries < 4 ? 1 : 4,
      T >
      , ValueBlock < L, L::kQueries < 5 ? 1 : 5, T >, ValueBlock < L, L::kQueries < 6 ? 1 : 6, T > };
  static_assert(L::kQueries <= 6);
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
HR_KERNEL_INLINE void AttendTiles(const Attention& op) {
  const int queries = op.rows * op.group_heads;
  const int64_t most = int64_t{kAttentionRowsMax} * op.group_heads, scalars = most + 16;
  float* at = op.scratch;
  const auto take = [&](int64_t floats) __attribute__((always_inline)) {
    float* taken = at;
    at += floats;
    return taken;
  };
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
                     {}};
  float scaled[kHeadDimMax];
  const auto softmax_scale = L::Set(op.softmax_scale);
  for (int i = 0; i < queries; ++i) {
    const float* q = op.queries + i / op.group_heads * op.query_stride + int64_t{i % op.group_heads} * op.head_dim;
    for (int d = 0; d < op.head_dim; d += L::kLanes) L::Store(scaled + d, L::Mul(L::Load(q + d), softmax_scale));
    page.q_scale[i] = LengthOf<L>(scaled, op.head_dim) / kLength;
    QuantiseVector<L>(scaled, op.head_dim, page.q_scale[i], page.q + i * op.head_dim);
  }
  const int64_t scales = int64_t{KvElementBytes(op.kv_type)} * kPageTokens * op.head_dim;
  const int64_t first = op.first_position + 1, end = op.first_position + op.rows;
  int64_t token = op.window > 0 && first > op.window ? first - op.window : 0;
  for (token -= token % kPageTokens; token < end; token += kPageTokens) {
    page.MoveTo(token);
    const int64_t block = op.block_table[token / kPageTokens] * op.block_stride;
    const std::byte *k = op.k_pages + block, *v = op.v_pages + block;
    EachBlockOf<L, true>(page, k, reinterpret_cast<const float*>(k + scales));
    for (int i = 0; i < queries; i += L::kLanes) SoftmaxBlock<L>(page, i, reinterpret_cast<const float*>(v + scales));
    EachBlockOf<L, false>(page, v, nullptr);
  }
  for (int i = 0; i < queries; ++i) {
    float* out = op.out + i / op.group_heads * op.out_stride + int64_t{i % op.group_heads} * op.head_dim;
    const auto sum = L::Set(page.l[i]);
    for (int d = 0; d < op.head_dim; d += L::kLanes)
      L::Store(out + d, L::Div(L::Load(page.o + int64_t{i} * op.head_dim + d), sum));
  }
}

// Quantised k to its slot's column of pairs, one pair at a time.
template <typename Pair, typename T>
HR_KERNEL_INLINE void StoreKey(const int16_t* quants, int n, T* page, int slot) {
  for (int d = 0; d < n; d += 2) {
    const T pair[2] = {static_cast<T>(quants[d]), static_cast<T>(quants[d + 1])};
    static_assert(sizeof(Pair) == sizeof pair);
    __builtin_memcpy(page + (d / 2 * kPageTokens + slot) * 2, pair, sizeof pair);
  }
}

template <typename L>
HR_KERNEL_INLINE void StoreKvTiles(const KvSlot& op) {
  const int64_t scales = int64_t{KvElementBytes(op.type)} * kPageTokens * op.head_dim;
  const int row = op.slot / 2 * op.head_dim * 2, place = op.slot % 2;
  int16_t k[kHeadDimMax], v[kHeadDimMax];
  const bool is_int8 = op.type == KvType::kInt8;
  const float k_scale = is_int8 ? SizeOf<L>(op.k, op.head_dim) / 127.0f : LengthOf<L>(op.k, op.head_dim) / kLength;
  const float v_scale = SizeOf<L>(op.v, op.head_dim) / (is_int8 ? 127.0f : kLength);
  reinterpret_cast<float*>(op.k_page + scales)[op.slot] = k_scale;
  reinterpret_cast<float*>(op.v_page + scales)[op.slot] = v_scale;
  QuantiseVector<L>(op.k, op.head_dim, k_scale, k);
  QuantiseVector<L>(op.v, op.head_dim, v_scale, v);
  if (!is_int8) {
    auto* v_page = reinterpret_cast<int16_t*>(op.v_page) + row;
    StoreKey<int32_t>(k, op.head_dim, reinterpret_cast<int16_t*>(op.k_page), op.slot);
    for (int d = 0; d < op.head_dim; d += L::kLanes) L::StoreInterleaved(v_page + 2 * d, v + d, place);
  } else {
    auto* v_page = reinterpret_cast<int8_t*>(op.v_page) + row + place;
    StoreKey<int16_t>(k, op.head_dim, reinterpret_cast<int8_t*>(op.k_page), op.slot);
    for (int d = 0; d < op.head_dim; ++d) v_page[2 * d] = static_cast<int8_t>(v[d]);
  }
}

template <typename L>
HR_KERNEL_INLINE void RotateTiles(const Rotation& op) {
  int i = 0;
  if (op.neighbours) {
    for (; i + L::kLanes / 2 <= op.pairs; i += L::kLanes / 2) {
      const auto x = L::Load(op.x + 2 * i);
      const auto turned = L::NegateEven(L::Mul(L::SwapPairs(x), L::LoadTwice(op.sine + i)));
      L::Store(op.x + 2 * i, L::Add(L::Mul(x, L::LoadTwice(op.cosine + i)), turned));
    }
  } else {
    for (; i + L::kLanes <= op.pairs; i += L::kLanes) {
      const auto a = L::Load(op.x + i), b = L::Load(op.x + op.pairs + i);
      const auto cosine = L::Load(op.cosine + i), sine = L::Load(op.sine + i);
      L::Store(op.x + i, L::Sub(L::Mul(a, cosine), L::Mul(b, sine)));
      L::Store(op.x + op.pairs + i, L::Add(L::Mul(a, sine), L::Mul(b, cosine)));
    }
  }
  const int step = op.neighbours ? 2 : 1, other = op.neighbours ? 1 : op.pairs;
  for (; i < op.pairs; ++i) {
    float &x = op.x[i * step], &y = op.x[i * step + other];
    const float a = x, b = y;
    x = a * op.cosine[i] - b * op.sine[i];
    y = a * op.sine[i] + b * op.cosine[i];
  }
}

}  // namespace headrace
