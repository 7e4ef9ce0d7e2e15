#pragma once

#include "kernels/attention.h"

namespace headrace {

// kernels/attention.h on AVX2; equal to the reference to the bit.
void Avx2Attend(const Attention& op);
void Avx2StoreKv(const float* k, const float* v, int head_dim, int slot, uint16_t* k_page, uint16_t* v_page);

}  // namespace headrace
