#include "trace/trace_writer.h"

#include "trace/limits.h"
#include "trace/trace_frames.h"

namespace headrace {

Status TraceWriter::Add(const RecordedRequest& request) {
  HR_RETURN_IF_ERROR(CheckRecorded(request));
  encoded_.clear();
  EncodeRequest(request, &encoded_);
  Status flushed;
  if (pending_.size() + encoded_.size() > kTraceFrameBytesMax) flushed = Flush();
  pending_ += encoded_;
  return flushed;
}

Status TraceWriter::Flush() {
  if (pending_.empty()) return {};
  std::string bytes = has_header_ ? std::string() : EncodeTraceHeader();
  bytes += EncodeFrameHeader(FrameKind::kRequests, pending_);
  bytes += pending_;
  pending_.clear();
  HR_RETURN_IF_ERROR(append_(bytes));
  has_header_ = true;
  return {};
}

}  // namespace headrace
