// Exact conversions between float, IEEE binary16 and bfloat16 in plain integer code: the same bits on every machine,
// equal to F16C (VCVTPH2PS, VCVTPS2PH with round to nearest even, subnormals kept), NaN payloads included.
// Pure functions, thread-safe.
#pragma once

#include <bit>
#include <cstdint>

namespace headrace {

// Exact: every half is a float. A signalling NaN becomes quiet, as the hardware makes it.
constexpr float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1Fu;
  uint32_t mantissa = half & 0x3FFu;
  if (exponent == 0x1F) {
    const uint32_t quiet = mantissa != 0 ? 0x00400000u : 0u;
    return std::bit_cast<float>(sign | 0x7F800000u | quiet | (mantissa << 13));
  }
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  if (mantissa == 0) return std::bit_cast<float>(sign);
  // Subnormal: mantissa * 2^-24. Shift the leading one to bit 10; each step lowers the exponent by one.
  const uint32_t shift = static_cast<uint32_t>(std::countl_zero(mantissa)) - 21;
  mantissa = (mantissa << shift) & 0x3FFu;
  return std::bit_cast<float>(sign | ((113 - shift) << 23) | (mantissa << 13));
}

// Rounds to nearest, ties to even; values from 65520 up become infinity.
constexpr uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {
    return static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  }
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // 65520 = halfway past the largest half
  if (magnitude >= 0x38800000u) {                                              // 2^-14: a normal half
    const uint32_t rebased = magnitude - (112u << 23);
    const uint32_t rounded = rebased + 0x0FFFu + ((rebased >> 13) & 1u);
    return static_cast<uint16_t>(sign | (rounded >> 13));
  }
  if (magnitude <= 0x33000000u) return static_cast<uint16_t>(sign);  // up to 2^-25, whose tie goes to even zero
  // Subnormal half: a multiple of 2^-24. The significand has 23 fraction bits below 2^(exponent - 127).
  const uint32_t exponent = magnitude >> 23;
  const uint32_t significand = (magnitude & 0x007FFFFFu) | 0x00800000u;
  const uint32_t shift = 126 - exponent;  // 14..24
  const uint32_t halfway = 1u << (shift - 1);
  const uint32_t quotient = significand >> shift;
  const uint32_t rest = significand & ((1u << shift) - 1);
  const uint32_t up = rest > halfway || (rest == halfway && (quotient & 1u) != 0) ? 1u : 0u;
  return static_cast<uint16_t>(sign | (quotient + up));
}

constexpr float Bf16ToFloat(uint16_t bf16) { return std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16); }

// Rounds to nearest, ties to even; a NaN stays a NaN and becomes quiet.
constexpr uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x0040u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// OCP 8-bit floats. E4M3 has no infinity; its NaNs become one; E5M2 is the upper byte of a half.
constexpr float E4m3ToFloat(uint8_t bits) {
  if ((bits & 0x7Fu) == 0x7Fu) return std::bit_cast<float>(0x7FC00000u);
  // As a half its exponent is 8 too low.
  return HalfToFloat(static_cast<uint16_t>((bits & 0x80u) << 8 | (bits & 0x7Fu) << 7)) * 256.0f;
}
constexpr float E5m2ToFloat(uint8_t bits) { return HalfToFloat(static_cast<uint16_t>(bits << 8)); }

// E8M0, a power of two, halved: 2^(bits - 128).
constexpr float HalfE8m0ToFloat(uint8_t bits) {
  return std::bit_cast<float>(bits < 2 ? 0x00200000u << bits : (bits - 1u) << 23);
}

}  // namespace headrace
