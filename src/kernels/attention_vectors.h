// One token's vectors over a class L of lanes (attention_tiles.h): quantised, stored in a page, turned.
#pragma once

#include "kernels/attention_softmax.h"
#include "kernels/key_spread.h"

namespace headrace {

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

template <typename L>
HR_KERNEL_INLINE void QuantiseVector(const float* x, int n, float scale, int16_t* quants) {
  const auto inverse = L::Set(InverseOf(scale));
  for (int i = 0; i < n; i += L::kLanes) L::StoreShorts(quants + i, L::Mul(L::Load(x + i), inverse));
}

// Lanes i and i ^ H become their sum and their difference, for H = kBegin, 2 * kBegin … within a vector.
template <typename T, T... I>
struct LaneList {};
template <typename L, int H, int... I>
HR_KERNEL_INLINE typename L::F AddAcross(typename L::F x, LaneList<int, I...>) {
  const typename L::F other = __builtin_shufflevector(x, x, (I ^ H)...);
  return __builtin_shufflevector(L::Add(other, x), L::Sub(other, x), ((I & H) == 0 ? I : I + L::kLanes)...);
}
template <typename L, int H = 1>
HR_KERNEL_INLINE typename L::F SpreadLanes(typename L::F x) {
  if constexpr (H == L::kLanes) {
    return x;
  } else {
    return SpreadLanes<L, 2 * H>(AddAcross<L, H>(x, __make_integer_seq<LaneList, int, L::kLanes>()));
  }
}

// key_spread.h; `out` may be `x`.
template <typename L>
HR_KERNEL_INLINE void SpreadVector(const float* x, int n, float* out) {
  for (int i = 0; i < n; i += L::kLanes)
    L::Store(out + i, SpreadLanes<L>(L::Mul(L::Load(x + i), L::Load(kSpreadSigns.at + i))));
  for (int h = L::kLanes; h < SpreadBlock(n); h *= 2) {
    for (int first = 0; first < n; first += 2 * h) {
      for (int i = first; i < first + h; i += L::kLanes) {
        const auto a = L::Load(out + i), b = L::Load(out + i + h);
        L::Store(out + i, L::Add(a, b));
        L::Store(out + i + h, L::Sub(a, b));
      }
    }
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
  float spread[kHeadDimMax];
  const bool is_int8 = op.type == KvType::kInt8;
  if (is_int8) SpreadVector<L>(op.k, op.head_dim, spread);
  const float k_scale = is_int8 ? SizeOf<L>(spread, op.head_dim) / 127.0f : LengthOf<L>(op.k, op.head_dim) / kLength;
  const float v_scale = SizeOf<L>(op.v, op.head_dim) / (is_int8 ? 127.0f : kLength);
  reinterpret_cast<float*>(op.k_page + scales)[op.slot] = k_scale;
  reinterpret_cast<float*>(op.v_page + scales)[op.slot] = v_scale;
  QuantiseVector<L>(is_int8 ? spread : op.k, op.head_dim, k_scale, k);
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
  RotatePairs(op, i);
}

}  // namespace headrace
