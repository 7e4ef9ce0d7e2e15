// Which tokens may come next: bit i % 32 of word i / 32 is token i's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace {

constexpr size_t MaskWords(int32_t vocab_size) { return (static_cast<size_t>(vocab_size) + 31) / 32; }

// False beyond the mask.
inline bool MaskAllows(std::span<const uint32_t> mask, int32_t token) {
  const auto word = static_cast<size_t>(token) / 32;
  return word < mask.size() && (mask[word] >> (token % 32) & 1) != 0;
}

// The first token that it allows; 0 if none.
inline int32_t FirstAllowed(std::span<const uint32_t> mask) {
  for (size_t word = 0; word < mask.size(); ++word) {
    if (mask[word] != 0) return static_cast<int32_t>(word) * 32 + __builtin_ctz(mask[word]);
  }
  return 0;
}

}  // namespace headrace
