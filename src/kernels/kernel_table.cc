#include "kernels/kernel_table.h"

#include <algorithm>

#include "base/cpu.h"

namespace headrace {

std::vector<const KernelTable*> UsableKernels() {
  std::vector<const KernelTable*> tables{&ReferenceKernels()};
#if defined(__x86_64__)
  const CpuFeatures cpu = DetectCpu();
  if (cpu.avx2) tables.push_back(&Avx2Kernels());
  if (cpu.avx_vnni) tables.push_back(&AvxVnniKernels());
  if (cpu.avx512_vnni) tables.push_back(&Avx512Kernels());
  if (cpu.amx_int8) tables.push_back(&AmxKernels());
#elif defined(__aarch64__)
  if (DetectCpu().neon_dot) tables.push_back(&NeonKernels());
#endif
  return tables;
}

Result<const KernelTable*> ChooseKernels(std::string_view forced) {
  const auto usable = UsableKernels();
  if (forced.empty()) return usable.back();
  std::string names;
  for (const KernelTable* table : usable) {
    if (forced == table->name) return table;
    names += std::string(names.empty() ? "" : ", ") + table->name;
  }
  return Fail(ErrorCode::kInvalidArgument,
              "no kernels named '" + std::string(forced) + "' for this CPU; usable here: " + names, "HEADRACE_ISA");
}

void MultiplyGateUp(const KernelTable& table, const GateUp& op, GateFunction function, int64_t panel_begin,
                    int64_t panel_end) {
  const bool silu = function == GateFunction::kSilu;
  if (silu && table.gate_up != nullptr && table.gate_up(op, panel_begin, panel_end)) return;
  MatMul up = op.gate;
  up.weights = op.up;
  up.out = op.up_out;
  table.matmul(op.gate, panel_begin, panel_end);
  table.matmul(up, panel_begin, panel_end);
  const int64_t column = panel_begin * kPanelRows, end = std::min(panel_end * kPanelRows, op.up.rows);
  for (int64_t row = 0; row < up.activations.rows; ++row) {
    float* out = op.gate.out + row * op.gate.out_stride + column;
    (silu ? table.silu_mul : table.gelu_mul)(out, op.up_out + row * op.gate.out_stride + column, end - column, out);
  }
}

void QuantizeWideGroups(const KernelTable& table, const Activations& a, int64_t chunk) {
  const int64_t groups = a.groups(), first = chunk * kWideChunkRows, end = std::min(a.rows, first + kWideChunkRows);
  int32_t* starts = a.rest_first + chunk * (groups + 1);
  int64_t entry = first * groups;
  for (int64_t row = first; row < end; ++row) a.row_is_wide[row] = 0;
  for (int64_t g = 0; g < groups; ++g) {
    starts[g] = static_cast<int32_t>(entry);
    for (int64_t row = first; row < end; ++row) {
      if (a.wide[row * groups + g] == 0) continue;
      a.row_is_wide[row] = 1;
      a.rest_row[entry] = static_cast<int32_t>(row - first);
      table.quantize_rest(a, row, g, entry++);
    }
  }
  starts[groups] = static_cast<int32_t>(entry);
}

}  // namespace headrace
