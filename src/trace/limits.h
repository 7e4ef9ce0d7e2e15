// What a trace may ask for, whoever wrote it. Text formats are read line by line; what is loaded whole is counted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace {

// A prompt of the longest context in use (10M tokens) has 20,000 names of 512-token blocks, of ten digits each.
constexpr size_t kTraceLineBytesMax = 1 << 20;
// Prompt or answer of one request: ten times the longest context in use is no measurement.
constexpr int64_t kTraceTokensMax = 100'000'000;
// Names of one request: 16M tokens in blocks of 64.
constexpr size_t kTraceRequestBlocksMax = 1 << 18;
// A trace spans no more than this: a stamp beyond it is in another unit.
constexpr int64_t kTraceDaysMax = 3'660;
// A frame holds what one second records; one request of kTraceRequestBlocksMax names must fit.
constexpr size_t kTraceFrameBytesMax = 8 << 20;

// Of a trace that is loaded whole: about 200 bytes a request and 16 a name, 456 MiB together.
struct TraceLimits {
  size_t requests_max = 1 << 20;
  size_t blocks_max = 1 << 24;
};

constexpr size_t kRecordedBytesBesideBlocks = 256;
static_assert(kTraceRequestBlocksMax * 16 + kRecordedBytesBesideBlocks <= kTraceFrameBytesMax);

}  // namespace headrace
