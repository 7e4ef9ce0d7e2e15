// Goal: no archive crashes the reader, reads outside it, or unpacks to more than it says.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "catalog/zip_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace;
  const auto source = SourceFromMemory(std::as_bytes(std::span(data, size)), "fuzz.whl");
  const auto zip = ZipReader::Open(*source);
  if (!zip) return 0;
  for (const ZipMember& member : zip->members()) {
    uint64_t bytes = 0;
    [[maybe_unused]] const Status status = zip->Extract(member, [&](std::span<const std::byte> piece) -> Status {
      bytes += piece.size();
      CHECK_LE(bytes, member.bytes);
      return {};
    });
  }
  return 0;
}
