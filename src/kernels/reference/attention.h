#pragma once

#include "kernels/attention.h"

namespace headrace {

// The definition of kernels/attention.h in scalar code.
void ReferenceAttend(const Attention& op);
void ReferenceMergeAttention(const AttentionMerge& op);
void ReferenceStoreKv(const KvSlot& op);
void ReferenceRotate(const Rotation& op);

}  // namespace headrace
