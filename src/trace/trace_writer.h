// Writes Headrace's own traces (trace_frames.h): gathers requests and hands over whole frames. Knows neither files nor
// clocks: whoever owns it calls Flush once a second, which bounds what a crash can cost, and appends what it gets with
// one write. One thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "trace/recorded_request.h"

namespace headrace {

class TraceWriter {
 public:
  // Appends bytes where the trace is kept. An error is handed to the caller of Add or Flush, and those requests are
  // lost.
  using Append = std::function<Status(std::string_view bytes)>;

  // continued: the file has its header and whole frames already.
  TraceWriter(Append append, bool continued) : append_(std::move(append)), has_header_(continued) {}

  // Flushes by itself before a frame would exceed kTraceFrameBytesMax. kInvalidArgument for what no reader would take.
  Status Add(const RecordedRequest& request);
  Status Flush();
  size_t pending_bytes() const { return pending_.size(); }

 private:
  Append append_;
  bool has_header_;
  std::string pending_;
  std::string encoded_;  // scratch of Add
};

}  // namespace headrace
