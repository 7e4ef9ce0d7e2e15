// Recorded traffic, from whichever form it was written in. One thread.
//   own       binary, of this program (trace_frames.h)
//   Mooncake  JSON lines: timestamp (ms), input_length, output_length, hash_ids of 512-token blocks
//             (github.com/kvcache-ai/Mooncake, FAST25-release)
//   Azure     CSV: TIMESTAMP,ContextTokens,GeneratedTokens (github.com/Azure/AzurePublicDataset, LLM inference 2023)
// Errors name file and line (of our own: the byte) and what to do. Memory: one request, whatever the file says.
#pragma once

#include <memory>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "trace/limits.h"
#include "trace/recorded_request.h"

namespace headrace {

class TraceReader {
 public:
  virtual ~TraceReader() = default;
  // The next request into `request`; false at the end. Text forms are in order of arrival and an error otherwise; our
  // own is in order of completion.
  virtual Result<bool> Next(RecordedRequest* request) = 0;
  // At the end: bytes of a last frame that was not written to its end, which is what a crash leaves.
  virtual uint64_t cut_bytes() const { return 0; }
};

// Looks at the first bytes. Borrows the source.
Result<std::unique_ptr<TraceReader>> OpenTrace(const ByteSource& source);
std::unique_ptr<TraceReader> ReadMooncake(const ByteSource& source);
std::unique_ptr<TraceReader> ReadAzure(const ByteSource& source);
Result<std::unique_ptr<TraceReader>> ReadOwnTrace(const ByteSource& source);

struct Trace {
  std::vector<RecordedRequest> requests;  // by arrival, then id; the first at 0
  uint64_t cut_bytes = 0;
};
// All of it. kTooLarge above the limits, which are named.
Result<Trace> LoadTrace(const ByteSource& source, const TraceLimits& limits = {});

}  // namespace headrace
