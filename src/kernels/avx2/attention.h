#pragma once

#include "kernels/attention.h"

namespace headrace {

// kernels/attention.h on AVX2; equal to the reference to the bit.
void Avx2Attend(const Attention& op);
void Avx2MergeAttention(const AttentionMerge& op);
void Avx2StoreKv(const KvSlot& op);
void Avx2Rotate(const Rotation& op);

}  // namespace headrace
