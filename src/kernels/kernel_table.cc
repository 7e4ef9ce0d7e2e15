#include "kernels/kernel_table.h"

#include <algorithm>

#include "base/cpu.h"

namespace headrace {

std::vector<const KernelTable*> UsableKernels() {
  std::vector<const KernelTable*> tables{&ReferenceKernels()};
#if defined(__x86_64__)
  const CpuFeatures cpu = DetectCpu();
  if (cpu.avx2) tables.push_back(&Avx2Kernels());
  if (cpu.avx512_vnni) tables.push_back(&Avx512Kernels());
  if (cpu.amx_int8) tables.push_back(&AmxKernels());
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
      a.rest_row[entry] = static_cast<int32_t>(row);
      table.quantize_rest(a, row, g, entry++);
    }
  }
  starts[groups] = static_cast<int32_t>(entry);
}

}  // namespace headrace
