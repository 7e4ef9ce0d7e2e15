// What a file is, by its first bytes and never by its name: a pickle renamed to .gguf is still a pickle (O-42).
#pragma once

#include "base/file.h"
#include "base/result.h"

namespace headrace {

enum class WeightsFormat : uint8_t { kGguf, kSafetensors };

// Errors: kUnsupported for pickles, archives and older formats, with how to convert; kCorruptData for files that are
// neither, such as web pages and pointers saved in place of a download.
Result<WeightsFormat> SniffWeights(const ByteSource& source);

}  // namespace headrace
