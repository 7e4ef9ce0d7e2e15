#pragma once

#include "kernels/attention.h"

namespace headrace {

// kernels/attention.h on AVX-512; equal to the reference to the bit.
void Avx512Attend(const Attention& op);
void Avx512MergeAttention(const AttentionMerge& op);
void Avx512StoreKv(const KvSlot& op);
void Avx512Rotate(const Rotation& op);

}  // namespace headrace
