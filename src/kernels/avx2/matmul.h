// The AVX2 matrix product.
#pragma once

#include "kernels/matmul.h"

namespace headrace {

void Avx2MatMul(const MatMul& op, int64_t panel_begin, int64_t panel_end);

}  // namespace headrace
