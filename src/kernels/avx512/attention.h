#pragma once

#include "kernels/attention.h"

namespace headrace {

// kernels/attention.h on AVX-512; equal to the reference to the bit.
void Avx512Attend(const Attention& op);
void Avx512StoreKv(const float* k, const float* v, int head_dim, int slot, uint16_t* k_page, uint16_t* v_page);

}  // namespace headrace
