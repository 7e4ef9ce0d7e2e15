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

void ListWideGroups(const Activations& a) {
  const int64_t groups = a.groups();
  int32_t count = 0;
  for (int64_t c = 0; c < a.chunks(); ++c) {
    const int64_t first = c * kWideChunkRows, end = std::min(a.rows, first + kWideChunkRows);
    int32_t* starts = a.wide_first + c * (groups + 1);
    for (int64_t row = first; row < end; ++row) a.row_is_wide[row] = 0;
    for (int64_t g = 0; g < groups; ++g) {
      starts[g] = count;
      for (int64_t row = first; row < end; ++row) {
        if (a.wide[row * groups + g] == 0) continue;
        a.row_is_wide[row] = 1;
        a.wide_index[count] = static_cast<int32_t>(a.GroupIndex(row, g));
        a.wide_row[count++] = static_cast<int32_t>(row);
      }
    }
    starts[groups] = count;
  }
}

}  // namespace headrace
