// The canonical scalar arithmetic of Forward: the definition of the bits. Every instruction set repeats exactly these
// operations: fused multiply-adds where FusedMulAdd stands, nowhere else; sums over a row by 16 lanes and one tree.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/attention.h"
#include "kernels/layout.h"

namespace headrace {

HR_KERNEL_INLINE float FusedMulAdd(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// Adding and taking away 1.5 * 2^23 rounds to nearest even for |x| < 2^22.
constexpr float kRoundMagic = 12582912.0f;
HR_KERNEL_INLINE float RoundToEven(float x) { return (x + kRoundMagic) - kRoundMagic; }

// exp(x), 2 ulp and exactly 1 at 0: Cody-Waite reduction by ln 2 in two parts, minimax polynomial of degree 5 with the
// least largest relative error in f32 (1.8e-7 for |f| <= 0.3466). Inputs are clamped to [-87, 88]; a NaN becomes the
// lower bound.
constexpr float kExpLow = -87.0f;
constexpr float kExpHigh = 88.0f;
constexpr float kLog2E = 1.44269504f;
constexpr float kLn2High = 0.693359375f;
constexpr float kLn2Low = -2.12194440e-4f;
constexpr float kExpC5 = 0x1.0fe5c4p-7f;
constexpr float kExpC4 = 0x1.576a6cp-5f;
constexpr float kExpC3 = 0x1.555a64p-3f;
constexpr float kExpC2 = 0x1.fffd4ap-2f;
constexpr float kExpC1 = 0x1.fffff6p-1f;

HR_KERNEL_INLINE float CanonicalExp(float x) {
  x = x > kExpLow ? x : kExpLow;
  x = x < kExpHigh ? x : kExpHigh;
  const float k = RoundToEven(x * kLog2E);
  float f = FusedMulAdd(k, -kLn2High, x);
  f = FusedMulAdd(k, -kLn2Low, f);
  float p = FusedMulAdd(kExpC5, f, kExpC4);
  p = FusedMulAdd(p, f, kExpC3);
  p = FusedMulAdd(p, f, kExpC2);
  p = FusedMulAdd(p, f, kExpC1);
  p = FusedMulAdd(p, f, 1.0f);
  const int32_t bits = (static_cast<int32_t>(k) + 127) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return p * power;
}

// x * sigmoid(x).
HR_KERNEL_INLINE float CanonicalSilu(float x) { return x / (1.0f + CanonicalExp(-x)); }

// x / 2 * (1 + tanh(u)), u = sqrt(2 / pi) * (x + 0.044715 x^3): GELU by its tanh formula (Hendrycks and Gimpel, 2016).
// (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)), which loses nothing where tanh(u) is near -1.
constexpr float kGeluLinear = 1.59576912f;   // 2 sqrt(2 / pi)
constexpr float kGeluCubic = 0.0713548163f;  // 0.044715 times that
HR_KERNEL_INLINE float CanonicalGelu(float x) {
  const float u2 = x * FusedMulAdd(x * x, kGeluCubic, kGeluLinear);
  return x / (1.0f + CanonicalExp(-u2));
}

// The sum of 16 lanes: halves are added until one is left.
HR_KERNEL_INLINE float TreeSum16(const float lanes[16]) {
  float t[16];
  std::memcpy(t, lanes, sizeof t);
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) t[i] = t[i] + t[i + half];
  }
  return t[0];
}

// Turns pairs [first, op.pairs).
HR_KERNEL_INLINE void RotatePairs(const Rotation& op, int first) {
  const int step = op.neighbours ? 2 : 1, other = op.neighbours ? 1 : op.pairs;
  for (int i = first; i < op.pairs; ++i) {
    float &x = op.x[i * step], &y = op.x[i * step + other];
    const float a = x, b = y;
    x = a * op.cosine[i] - b * op.sine[i];
    y = a * op.sine[i] + b * op.cosine[i];
  }
}

}  // namespace headrace
