// Attention on AVX-VNNI.
#include "kernels/avx2/attention_lanes.h"
#include "kernels/avxvnni/avxvnni.h"

namespace headrace {

void AvxVnniAttend(const Attention& op) { AttendTiles<Lanes>(op); }

}  // namespace headrace
