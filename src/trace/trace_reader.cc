#include "trace/trace_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "trace/trace_frames.h"

namespace headrace {

Result<std::unique_ptr<TraceReader>> OpenTrace(const ByteSource& source) {
  std::string head(static_cast<size_t>(std::min<uint64_t>(source.size(), 16)), '\0');
  HR_RETURN_IF_ERROR(source.Read(0, std::as_writable_bytes(std::span(head))));
  if (head.starts_with(kTraceMagic.substr(0, std::min(head.size(), kTraceMagic.size()))) && !head.empty())
    return ReadOwnTrace(source);
  if (head.starts_with("{")) return ReadMooncake(source);
  if (head.starts_with("TIMESTAMP")) return ReadAzure(source);
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{} is no trace that Headrace reads: neither its own (begins with {}), nor Mooncake's JSON "
                          "lines (begin with a brace), nor Azure's CSV (begins with TIMESTAMP).",
                          source.name(), kTraceMagic));
}

Result<Trace> LoadTrace(const ByteSource& source, const TraceLimits& limits) {
  HR_ASSIGN_OR_RETURN(const auto reader, OpenTrace(source));
  Trace trace;
  size_t blocks = 0;
  for (RecordedRequest request;;) {
    HR_ASSIGN_OR_RETURN(const bool more, reader->Next(&request));
    if (!more) break;
    blocks += request.blocks.size();
    if (trace.requests.size() >= limits.requests_max || blocks > limits.blocks_max) {
      return Fail(ErrorCode::kTooLarge, fmt::format("{} has more than {} requests or {} block names. Use a part of it.",
                                                    source.name(), limits.requests_max, limits.blocks_max));
    }
    trace.requests.push_back(request);
    trace.requests.back().blocks.shrink_to_fit();
  }
  trace.cut_bytes = reader->cut_bytes();
  std::ranges::sort(trace.requests, {}, [](const RecordedRequest& r) { return std::pair(r.arrival_us, r.id); });
  const int64_t begin = trace.requests.empty() ? 0 : trace.requests.front().arrival_us;
  for (RecordedRequest& request : trace.requests) request.arrival_us -= begin;
  return trace;
}

}  // namespace headrace
