#include "kernels/neon/half_panel.h"
#include "kernels/neon/neon.h"

namespace headrace {

void NeonMatMul(const MatMul& op, int64_t panel_begin, int64_t panel_end) {
  if (!IsQuantised(op.weights.dtype)) return NeonFloatMatMul(op, panel_begin, panel_end);
  MultiplyPanels<HalfPanel>(op, panel_begin, panel_end);
}

}  // namespace headrace
