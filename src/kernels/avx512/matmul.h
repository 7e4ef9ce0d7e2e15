// The AVX-512 matrix product, also AMX's for few rows and for floats.
#pragma once

#include "kernels/matmul.h"

namespace headrace {

void Avx512MatMul(const MatMul& op, int64_t panel_begin, int64_t panel_end);

}  // namespace headrace
