// Mooncake's JSON lines; see trace_reader.h.
#include <fmt/format.h>

#include "json/json.h"
#include "json/json_fields.h"
#include "trace/line_reader.h"
#include "trace/trace_reader.h"

namespace headrace {
namespace {

constexpr int32_t kMooncakeBlockTokens = 512;
// A line is an object with one array of numbers.
constexpr JsonLimits kLineLimits{
    .bytes_max = kTraceLineBytesMax + 1, .depth_max = 2, .nodes_max = kTraceRequestBlocksMax + 16};

class MooncakeReader final : public TraceReader {
 public:
  explicit MooncakeReader(const ByteSource& source) : lines_(source) {}

  Result<bool> Next(RecordedRequest* request) override {
    HR_ASSIGN_OR_RETURN(const auto line, lines_.Next());
    if (!line) return false;
    *request = {.id = ++id_, .block_tokens = kMooncakeBlockTokens, .blocks = std::move(request->blocks)};
    request->blocks.clear();
    Status status = Parse(*line, request);
    if (status) status = CheckRecorded(*request);
    if (!status) return Fail(lines_.At(status.error().code, status.error().message));
    if (request->arrival_us < last_us_) {
      return Fail(
          lines_.At(ErrorCode::kInvalidArgument,
                    fmt::format("timestamp {} is before that of the request above, {}; sort the file by timestamp",
                                request->arrival_us / 1000, last_us_ / 1000)));
    }
    last_us_ = request->arrival_us;
    return true;
  }

 private:
  static Status Parse(std::string_view line, RecordedRequest* request) {
    HR_ASSIGN_OR_RETURN(const Json json, ParseJson(line, kLineLimits));
    HR_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(json, ""));
    HR_ASSIGN_OR_RETURN(const auto timestamp, fields.Integer("timestamp", 0, kTraceDaysMax * 86'400'000));
    HR_ASSIGN_OR_RETURN(const auto input, fields.Integer("input_length", 1, kTraceTokensMax));
    HR_ASSIGN_OR_RETURN(const auto output, fields.Integer("output_length", 0, kTraceTokensMax));
    HR_ASSIGN_OR_RETURN(const Json* hashes, fields.Array("hash_ids", kTraceRequestBlocksMax));
    if (!timestamp || !input || !output) {
      return Fail(ErrorCode::kInvalidArgument,
                  "timestamp, input_length and output_length are needed; a cut line is best removed");
    }
    request->arrival_us = *timestamp * 1000;
    request->prompt_tokens = *input;
    request->output_tokens = *output;
    for (size_t i = 0; hashes != nullptr && i < hashes->size(); ++i) {
      HR_ASSIGN_OR_RETURN(const int64_t id, JsonInteger((*hashes)[i], 0, INT64_MAX, "hash_ids"));
      request->blocks.push_back({0, static_cast<uint64_t>(id)});
    }
    return {};
  }

  LineReader lines_;
  uint64_t id_ = 0;
  int64_t last_us_ = 0;
};

}  // namespace

std::unique_ptr<TraceReader> ReadMooncake(const ByteSource& source) { return std::make_unique<MooncakeReader>(source); }

}  // namespace headrace
