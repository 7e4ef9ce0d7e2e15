// The scalar matrix product, also used by the other tables for types that have no packed layout yet.
#pragma once

#include "kernels/matmul.h"

namespace headrace {

void ReferenceMatMul(const MatMul& op, int64_t panel_begin, int64_t panel_end);

}  // namespace headrace
