// out[m][r] = sum over k of W[r][k] * x[m][k], for M activation rows and a packed weight matrix.
//
// The bits, for each (m, r), acc = +0, groups of 32 columns in order of k:
//   Q4_1, Q5_1, Q4_K, Q5_K: acc = fma(min, scaled_sum, acc), then as below; min = -(dmin * m) for the K types
//   Q2_K:                   acc = fma(float(m0 * sum0 + m1 * sum1), -dmin * activation_scale, acc), then as below
//   Q2_K, Q3_K, Q6_K:       acc = fma(float(factor0 * dot0 + factor1 * dot1), d * activation_scale, acc)
//   other quantised types:  acc = fma(float(dot), weight_scale * activation_scale, acc); weight_scale = d * factor for
//                           Q4_K and Q5_K, half of the stored power of two for MXFP4 (its integers are doubled)
//   F32, F16, BF16:         acc = fma(w, x, acc) for each k
//   F8_E4M3, F8_E5M2:       part = +0, part = fma(w, x, part) for each k of 128 columns, acc = fma(scale, part, acc)
//                           REQUIRES: finite weights. w of F8_E4M3 is the value / 256, scale the matrix's * 256
// Dots and sums are integers, over all 32 columns or, with 0 and 1, over 16 each.
// then out = acc, or out = out + acc with accumulate. For quantised types a row with wide groups then adds rest, summed
// the same way from +0 over its wide groups' second planes alone: out = out + rest.
// Never dependent on M, on the panel split or on the instruction set.
#pragma once

#include "kernels/layout.h"

namespace headrace {

struct MatMul {
  PackedMatrix weights;     // [R, K]
  Activations activations;  // [M, K]
  float* out = nullptr;     // [M][out_stride], R columns used
  int64_t out_stride = 0;
  bool accumulate = false;
};

// gate.out[m][r] = silu(gate product) * (up product), for two matrices of one shape and one set of activations. The
// bits are those of the two products and of SiluMul over them.
struct GateUp {
  MatMul gate;  // not accumulating
  PackedMatrix up;
  float* up_out = nullptr;  // [M][gate.out_stride], may be written
};

}  // namespace headrace
