// The AVX-512 matrix product of weights that are floats of any width.
#pragma once

#include "kernels/matmul.h"

namespace headrace {

void Avx512FloatMatMul(const MatMul& op, int64_t panel_begin, int64_t panel_end);

}  // namespace headrace
