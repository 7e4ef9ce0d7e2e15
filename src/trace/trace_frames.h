// Headrace's own form of a trace, version 1. Little endian. Appended to only; whatever stands complete stays readable.
//
//   file    magic "HRTRACE\n" (8 bytes), version u32, CRC-32C of those 12 bytes u32, frames
//   frame   mark "HRF1" (4 bytes), kind u8, 3 bytes 0, payload bytes u32, CRC-32C of the 8 bytes before and the payload
//           u32, payload
//   kind 1  requests: each its bytes as a varint, then its fields
//   fields  varints (LEB128), signed ones zigzag, in the order of EncodeRequest; floats as 4 bytes, names as 16
//
// A writer puts what one second recorded into one frame and appends it with one write, so a crash costs that second and
// leaves at most a cut last frame. Frames of unknown kind and fields behind the known ones are passed over: version 1
// readers read what later ones add. Anything else changes the version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "trace/recorded_request.h"

namespace headrace {

constexpr std::string_view kTraceMagic = "HRTRACE\n";
constexpr uint32_t kTraceVersion = 1;
constexpr size_t kTraceHeaderBytes = 16;
constexpr std::string_view kFrameMark = "HRF1";
constexpr size_t kFrameHeaderBytes = 16;
enum class FrameKind : uint8_t { kRequests = 1 };

// CRC-32C (Castagnoli; RFC 3720, appendix B.4) of `bytes`, continued from `crc`.
uint32_t Crc32c(std::string_view bytes, uint32_t crc = 0);

std::string EncodeTraceHeader();
// Appends the request with its length.
void EncodeRequest(const RecordedRequest& request, std::string* out);
// Takes one request off the front of `payload`. kCorruptData when its fields do not fit its length.
Status DecodeRequest(std::string_view* payload, RecordedRequest* request);
// REQUIRES: payload within kTraceFrameBytesMax.
std::string EncodeFrameHeader(FrameKind kind, std::string_view payload);

struct FrameHeader {
  FrameKind kind = FrameKind::kRequests;
  uint32_t payload_bytes = 0;
  uint32_t crc = 0;
  std::string_view checked;  // the 8 bytes that the checksum begins with
};
// False when these are not the bytes of a frame's header. REQUIRES: kFrameHeaderBytes bytes, which outlive it.
bool DecodeFrameHeader(std::string_view bytes, FrameHeader* header);

void AppendU32(std::string* out, uint32_t value);
uint32_t ReadU32(std::string_view bytes);

}  // namespace headrace
