// The scalar matrix product, which defines the bits.
#pragma once

#include "kernels/matmul.h"

namespace headrace {

void ReferenceMatMul(const MatMul& op, int64_t panel_begin, int64_t panel_end);

}  // namespace headrace
