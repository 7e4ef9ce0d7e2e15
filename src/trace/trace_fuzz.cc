// libFuzzer: any bytes as a trace load within small limits or fail with an error that says where; what loads survives
// being written and read again. Seeds: corpus/trace.
#include <cstdint>
#include <cstdlib>

#include "trace/trace_reader.h"
#include "trace/trace_writer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace;
  const auto source = SourceFromMemory(std::as_bytes(std::span(data, size)), "fuzz");
  const Result<Trace> trace = LoadTrace(*source, {.requests_max = 4096, .blocks_max = 65'536});
  if (!trace) {
    if (trace.error().message.find("fuzz") == std::string::npos) std::abort();
    return 0;
  }
  std::string bytes;
  TraceWriter writer(
      [&](std::string_view more) {
        bytes += more;
        return Status();
      },
      false);
  for (const RecordedRequest& request : trace->requests) {
    if (!writer.Add(request)) std::abort();
  }
  if (!writer.Flush()) std::abort();
  if (trace->requests.empty()) return 0;
  const auto written = SourceFromMemory(std::as_bytes(std::span(bytes)), "again");
  const Result<Trace> again = LoadTrace(*written);
  if (!again || again->requests.size() != trace->requests.size()) std::abort();
  return 0;
}
