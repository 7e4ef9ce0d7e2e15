// Spreads what is large in a key over the head, before it becomes 8-bit integers. Keys have outlier channels: with one
// scale a token those choose the step of all others. Signs and a Walsh-Hadamard transform of keys and queries both
// (QuaRot, Ashkboos et al., 2024) make every element a sum of all, and leave the products as they are but for a factor
// that is a power of two.
//
// Spread(x): y_d = x_d * sign_d; then for h = 1, 2, 4 … block / 2 every pair (y_d, y_{d+h}), d without the bit h,
// becomes (y_d + y_{d+h}, y_d - y_{d+h}). Spread(q) * Spread(k) = block * (q * k).
#pragma once

#include "kernels/attention.h"

namespace headrace {

// Elements that are mixed: the largest power of two that divides the head; at least 16.
constexpr int SpreadBlock(int head_dim) { return head_dim & -head_dim; }

// Signs by a hash of the element: without them elements that are all alike would become one outlier.
struct SpreadSigns {
  float at[kHeadDimMax];

  constexpr SpreadSigns() : at() {
    for (uint32_t d = 0; d < kHeadDimMax; ++d) {
      uint32_t hash = d * 2654435761u;
      hash ^= hash >> 15;
      hash *= 0x85ebca6bu;
      at[d] = ((hash ^ (hash >> 13)) & 1) != 0 ? 1.0f : -1.0f;
    }
  }
};
constexpr SpreadSigns kSpreadSigns;

}  // namespace headrace
