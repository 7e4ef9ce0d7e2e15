#pragma once

#include "kernels/attention.h"

namespace headrace {

// kernels/attention.h on AVX-512; equal to the reference to the bit.
void Avx512Attend(const Attention& op);

}  // namespace headrace
