// Parses one GGUF file's header. Nothing is allocated from a number in the file before that number is checked against
// the file's size and a named maximum.
#pragma once

#include <cstdint>

#include "base/file.h"
#include "base/result.h"
#include "weights/parsed_header.h"

namespace headrace {

// meta_bytes_max, tensors_max: what is left of kMetaBytesMax and kTensorsMax when a model has several files.
// Guarantees that every tensor lies inside the file, aligned; names and overlaps are the caller's to check.
Result<ParsedHeader> ReadGgufHeader(const ByteSource& source, uint64_t meta_bytes_max, uint64_t tensors_max);

}  // namespace headrace
