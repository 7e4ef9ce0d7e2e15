// Whether stored numbers are numbers: a NaN or an infinity in a model spoils every answer. Quantised types are judged
// by the scales and minimums of their blocks, since their codes are finite. Pure function, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace headrace {

// row: RowBytes(type, columns) bytes of any alignment. False when a value that DequantizeRow would give is not finite.
// REQUIRES: Info(type).computable, columns a multiple of block_elements.
bool AllFinite(DType type, const std::byte* row, int64_t columns);

}  // namespace headrace
