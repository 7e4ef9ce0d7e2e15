// Scalar reading of packed panels: what the reference multiplies and embedding rows look up. Pure functions.
#pragma once

#include "kernels/formats.h"

namespace headrace {

// 32 columns of one row: value = scale * (quant * factor of its half) + min_scale * min of its half.
struct WeightGroup {
  int16_t quants[kGroup];
  int32_t factor[2] = {1, 1};
  int32_t min[2] = {0, 0};  // of Q2_K
  float scale = 0;
  float min_scale = 0;  // for other types with a minimum it is that minimum, of all 32 columns
};

WeightGroup ReadPanelGroup(const PackedMatrix& matrix, const std::byte* panel, int lane, int64_t group);
// The same for panels of floats: columns [first, first + count) of one row, without scales;
// of F8_E4M3 divided by kScaleUnitE4M3.
void ReadPanelFloats(const PackedMatrix& matrix, const std::byte* panel, int lane, int64_t first, int64_t count,
                     float* out);
// What these are multiplied by in 128 columns of 8-bit floats.
float ReadPanelScale(const std::byte* panel, int lane, int64_t block);

}  // namespace headrace
