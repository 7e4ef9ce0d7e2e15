// Attention on AVX2.
#include "kernels/avx2/attention.h"

#include "kernels/avx2/attention_lanes.h"

namespace headrace {

void Avx2Attend(const Attention& op) { AttendTiles<Lanes>(op); }
void Avx2MergeAttention(const AttentionMerge& op) { MergeTiles<Lanes>(op); }
void Avx2StoreKv(const KvSlot& op) { StoreKvTiles<Lanes>(op); }
void Avx2Rotate(const Rotation& op) { RotateTiles<Lanes>(op); }

}  // namespace headrace
