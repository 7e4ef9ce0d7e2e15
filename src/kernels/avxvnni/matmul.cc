#include "kernels/avx2/floats.h"
#include "kernels/avx2/half_panel.h"
#include "kernels/avxvnni/avxvnni.h"

namespace headrace {

void AvxVnniMatMul(const MatMul& op, int64_t panel_begin, int64_t panel_end) {
  if (!IsQuantised(op.weights.dtype)) return Avx2FloatMatMul(op, panel_begin, panel_end);
  MultiplyPanels<HalfPanel>(op, panel_begin, panel_end);
}

}  // namespace headrace
