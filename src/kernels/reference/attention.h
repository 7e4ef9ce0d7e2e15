#pragma once

#include "kernels/attention.h"

namespace headrace {

// The definition of kernels/attention.h in scalar code.
void ReferenceAttend(const Attention& op);
void ReferenceStoreKv(const float* k, const float* v, int head_dim, int slot, uint16_t* k_page, uint16_t* v_page);

}  // namespace headrace
