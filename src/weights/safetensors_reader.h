// Parses one safetensors file's header without a JSON tree: memory is the header's text and the tensors.
#pragma once

#include <cstdint>

#include "base/file.h"
#include "base/result.h"
#include "weights/parsed_header.h"

namespace headrace {

// As ReadGgufHeader. As the reference implementation has it, the tensors must cover the data section exactly.
Result<ParsedHeader> ReadSafetensorsHeader(const ByteSource& source, uint64_t meta_bytes_max, uint64_t tensors_max);

}  // namespace headrace
