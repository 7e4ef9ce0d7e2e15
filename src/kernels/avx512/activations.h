#pragma once

#include "kernels/layout.h"

namespace headrace {

// KernelTable::quantize_row and quantize_rest on AVX-512; equal to the reference to the bit.
void Avx512QuantizeRow(const Activations& activations, int64_t row);
void Avx512QuantizeRest(const Activations& activations, int64_t row, int64_t group, int64_t entry);

}  // namespace headrace
