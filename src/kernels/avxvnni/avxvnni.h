// What AVX-VNNI (the dot products of VNNI in 256 bits, without AVX-512) does better than AVX2: products and attention.
#pragma once

#include "kernels/attention.h"
#include "kernels/matmul.h"

namespace headrace {

void AvxVnniMatMul(const MatMul& op, int64_t panel_begin, int64_t panel_end);
void AvxVnniAttend(const Attention& op);

}  // namespace headrace
