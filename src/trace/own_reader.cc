// Headrace's own traces; see trace_frames.h.
#include <fmt/format.h>

#include <string>

#include "trace/limits.h"
#include "trace/trace_frames.h"
#include "trace/trace_reader.h"

namespace headrace {
namespace {

class OwnReader final : public TraceReader {
 public:
  explicit OwnReader(const ByteSource& source) : source_(source) {}

  Status ReadHeader() {
    std::string header(kTraceHeaderBytes, '\0');
    if (source_.size() < header.size()) {
      return Fail(ErrorCode::kCorruptData,
                  fmt::format("{} ends within its first {} bytes: nothing was recorded. Remove it.", source_.name(),
                              kTraceHeaderBytes));
    }
    HR_RETURN_IF_ERROR(ReadAt(0, &header));
    const uint32_t version = ReadU32(std::string_view(header).substr(8));
    if (Crc32c(std::string_view(header).substr(0, 12)) != ReadU32(std::string_view(header).substr(12)))
      return Fail(Damaged(0, "the file's header"));
    if (version != kTraceVersion) {
      return Fail(
          ErrorCode::kUnsupported,
          fmt::format("{} is a trace of version {}; this program reads version {}. Read it with the program that "
                      "recorded it, or a newer one.",
                      source_.name(), version, kTraceVersion));
    }
    next_ = kTraceHeaderBytes;
    return {};
  }

  Result<bool> Next(RecordedRequest* request) override {
    while (left_.empty()) {
      HR_ASSIGN_OR_RETURN(const bool more, ReadFrame());
      if (!more) return false;
    }
    if (!DecodeRequest(&left_, request)) return Fail(Damaged(frame_, "a request"));
    if (const Status status = CheckRecorded(*request); !status) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}, frame at byte {}: {}.", source_.name(), frame_, status.error().message));
    }
    return true;
  }

  uint64_t cut_bytes() const override { return cut_; }

 private:
  // The next frame of requests into left_; false at the end.
  Result<bool> ReadFrame() {
    for (;;) {
      frame_ = next_;
      const uint64_t rest = source_.size() - frame_;
      if (rest == 0) return false;
      if (rest < kFrameHeaderBytes) return End(rest);
      std::string bytes(kFrameHeaderBytes, '\0');
      HR_RETURN_IF_ERROR(ReadAt(frame_, &bytes));
      FrameHeader header;
      if (!DecodeFrameHeader(bytes, &header)) return Fail(Damaged(frame_, "a frame's header"));
      if (rest - kFrameHeaderBytes < header.payload_bytes) return End(rest);
      payload_.resize(header.payload_bytes);
      HR_RETURN_IF_ERROR(ReadAt(frame_ + kFrameHeaderBytes, &payload_));
      if (Crc32c(payload_, Crc32c(header.checked)) != header.crc) return Fail(Damaged(frame_, "a frame"));
      next_ = frame_ + kFrameHeaderBytes + header.payload_bytes;
      if (header.kind != FrameKind::kRequests) continue;  // of a later writer
      left_ = payload_;
      return true;
    }
  }

  Result<bool> End(uint64_t rest) {
    cut_ = rest;
    next_ = source_.size();
    return false;
  }

  Status ReadAt(uint64_t offset, std::string* bytes) {
    return source_.Read(offset, std::as_writable_bytes(std::span(*bytes)));
  }

  Error Damaged(uint64_t offset, std::string_view what) const {
    return {
        ErrorCode::kCorruptData,
        fmt::format("{}, byte {}: {} is damaged. What stands before it is good: cut the file there, or take it from "
                    "a copy.",
                    source_.name(), offset, what),
        {},
        0};
  }

  const ByteSource& source_;
  uint64_t next_ = 0, frame_ = 0, cut_ = 0;
  std::string payload_;
  std::string_view left_;  // of payload_
};

}  // namespace

Result<std::unique_ptr<TraceReader>> ReadOwnTrace(const ByteSource& source) {
  auto reader = std::make_unique<OwnReader>(source);
  HR_RETURN_IF_ERROR(reader->ReadHeader());
  return reader;
}

}  // namespace headrace
