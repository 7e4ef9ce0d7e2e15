// The parts of the NEON table that have sources of their own; equal to the reference to the bit.
#pragma once

#include "kernels/attention.h"
#include "kernels/matmul.h"

namespace headrace {

void NeonMatMul(const MatMul& op, int64_t panel_begin, int64_t panel_end);
void NeonFloatMatMul(const MatMul& op, int64_t panel_begin, int64_t panel_end);
void NeonAttend(const Attention& op);
void NeonMergeAttention(const AttentionMerge& op);
void NeonStoreKv(const KvSlot& op);
void NeonRotate(const Rotation& op);

}  // namespace headrace
