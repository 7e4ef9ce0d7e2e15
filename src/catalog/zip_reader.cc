#include "catalog/zip_reader.h"

#include <fnmatch.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"

namespace headrace {
namespace {

constexpr uint64_t kEndRecordBytes = 22;
constexpr uint64_t kEntryBytes = 46;
constexpr uint64_t kLocalHeaderBytes = 30;
constexpr uint64_t kPieceBytes = 256 * 1024;
constexpr uint32_t kEndSignature = 0x06054b50, kEntrySignature = 0x02014b50, kLocalSignature = 0x04034b50;

using Bytes = std::span<const std::byte>;

uint16_t U16(Bytes b, size_t at) {
  return static_cast<uint16_t>(std::to_integer<unsigned>(b[at]) | std::to_integer<unsigned>(b[at + 1]) << 8);
}
uint32_t U32(Bytes b, size_t at) { return U16(b, at) | static_cast<uint32_t>(U16(b, at + 2)) << 16; }

std::unexpected<Error> Corrupt(const ByteSource& source, const std::string& what) {
  return Fail(ErrorCode::kCorruptData, source.name() + " is not a whole ZIP archive: " + what, "archive");
}

struct Directory {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  size_t members = 0;
};

// The end record stands in the last 22 bytes plus a comment of at most 65,535.
Result<Directory> FindDirectory(const ByteSource& source) {
  const uint64_t tail_bytes = std::min<uint64_t>(source.size(), kEndRecordBytes + 65'535);
  if (tail_bytes < kEndRecordBytes) return Corrupt(source, "it has only " + std::to_string(source.size()) + " bytes");
  std::vector<std::byte> tail(tail_bytes);
  HR_RETURN_IF_ERROR(source.Read(source.size() - tail_bytes, tail));
  for (size_t at = tail.size() - kEndRecordBytes;; --at) {
    const Bytes record = Bytes(tail).subspan(at);
    if (U32(record, 0) == kEndSignature && U16(record, 20) == record.size() - kEndRecordBytes) {
      const Directory d{U32(record, 16), U32(record, 12), U16(record, 10)};
      if (d.offset == 0xFFFFFFFF || d.members == 0xFFFF || U16(record, 4) != 0 || U16(record, 8) != d.members)
        return Fail(ErrorCode::kUnsupported, source.name() + " is a ZIP64 or multi-volume archive; these are not read",
                    "archive");
      if (d.bytes > kZipDirectoryBytesMax)
        return Fail(ErrorCode::kTooLarge,
                    source.name() + " lists more than " + std::to_string(kZipDirectoryBytesMax) + " bytes of members",
                    "archive");
      if (d.offset > source.size() || d.bytes > source.size() - d.offset)
        return Corrupt(source, "its directory lies outside the file");
      return d;
    }
    if (at == 0) return Corrupt(source, "it has no end record");
  }
}

}  // namespace

Result<ZipReader> ZipReader::Open(const ByteSource& source) {
  HR_ASSIGN_OR_RETURN(const Directory directory, FindDirectory(source));
  std::vector<std::byte> bytes(directory.bytes);
  HR_RETURN_IF_ERROR(source.Read(directory.offset, bytes));
  ZipReader reader(source);
  Bytes rest = bytes;
  for (size_t i = 0; i < directory.members; ++i) {
    if (rest.size() < kEntryBytes || U32(rest, 0) != kEntrySignature)
      return Corrupt(source, "member " + std::to_string(i) + " of its directory is broken");
    const size_t name_bytes = U16(rest, 28);
    const size_t entry_bytes = kEntryBytes + name_bytes + U16(rest, 30) + U16(rest, 32);
    if (rest.size() < entry_bytes)
      return Corrupt(source, "member " + std::to_string(i) + " is longer than the directory");
    reader.members_.push_back(
        {.name = std::string(reinterpret_cast<const char*>(rest.data()) + kEntryBytes, name_bytes),
         .flags = U16(rest, 8),
         .method = U16(rest, 10),
         .crc32 = U32(rest, 16),
         .packed_bytes = U32(rest, 20),
         .bytes = U32(rest, 24),
         .header_offset = U32(rest, 42)});
    rest = rest.subspan(entry_bytes);
  }
  return reader;
}

Result<const ZipMember*> ZipReader::FindOne(const std::string& pattern) const {
  const ZipMember* found = nullptr;
  for (const ZipMember& member : members_) {
    const size_t slash = member.name.rfind('/');
    const char* last = member.name.c_str() + (slash == std::string::npos ? 0 : slash + 1);
    if (fnmatch(pattern.c_str(), member.name.c_str(), 0) != 0 && fnmatch(pattern.c_str(), last, 0) != 0) continue;
    if (found != nullptr)
      return Fail(ErrorCode::kCorruptData, source_->name() + " has more than one member " + EscapeForLog(pattern),
                  "archive");
    found = &member;
  }
  if (found == nullptr)
    return Fail(ErrorCode::kCorruptData, source_->name() + " has no member " + EscapeForLog(pattern), "archive");
  return found;
}

// The local header repeats the entry with its own lengths of name and extra field.
Result<uint64_t> ZipReader::DataOffset(const ZipMember& member) const {
  std::byte header[kLocalHeaderBytes];
  HR_RETURN_IF_ERROR(source_->Read(member.header_offset, header));
  if (U32(header, 0) != kLocalSignature) return Corrupt(*source_, "a member's header is not where its directory says");
  const uint64_t offset = member.header_offset + kLocalHeaderBytes + U16(header, 26) + U16(header, 28);
  if (offset > source_->size() || member.packed_bytes > source_->size() - offset)
    return Corrupt(*source_, "a member ends behind the file");
  return offset;
}

Status ZipReader::Extract(const ZipMember& member, const Sink& sink) const {
  if ((member.flags & 1) != 0) return Fail(ErrorCode::kUnsupported, source_->name() + " is encrypted", "archive");
  if (member.method != 0 && member.method != Z_DEFLATED)
    return Fail(ErrorCode::kUnsupported,
                source_->name() + " is packed with method " + std::to_string(member.method) +
                    "; stored and deflated members are read",
                "archive");
  HR_ASSIGN_OR_RETURN(const uint64_t offset, DataOffset(member));
  uint64_t given = 0;
  uLong crc = ::crc32(0, nullptr, 0);
  const Sink checked = [&](Bytes piece) -> Status {
    given += piece.size();
    if (given > member.bytes) return Corrupt(*source_, "a member unpacks to more than it says");
    crc = ::crc32(crc, reinterpret_cast<const Bytef*>(piece.data()), static_cast<uInt>(piece.size()));
    return sink(piece);
  };
  if (member.method == Z_DEFLATED) {
    HR_RETURN_IF_ERROR(Inflate(member, offset, checked));
  } else {
    std::vector<std::byte> piece(std::min(kPieceBytes, member.packed_bytes));
    for (uint64_t done = 0; done < member.packed_bytes; done += piece.size()) {
      piece.resize(std::min(kPieceBytes, member.packed_bytes - done));
      HR_RETURN_IF_ERROR(source_->Read(offset + done, piece));
      HR_RETURN_IF_ERROR(checked(piece));
    }
  }
  if (given != member.bytes) return Corrupt(*source_, "a member unpacks to less than it says");
  if (crc != member.crc32) return Corrupt(*source_, "a member's CRC is wrong");
  return {};
}

Status ZipReader::Inflate(const ZipMember& member, uint64_t offset, const Sink& checked) const {
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return Fail(ErrorCode::kInternal, "zlib does not start");
  struct End {
    z_stream* stream;
    ~End() { inflateEnd(stream); }
  } end{&stream};
  std::vector<std::byte> in(std::min(kPieceBytes, member.packed_bytes)), out(kPieceBytes);
  uint64_t read = 0;
  for (int code = Z_OK; code != Z_STREAM_END;) {
    if (stream.avail_in == 0) {
      if (read == member.packed_bytes) return Corrupt(*source_, "a member's packed bytes end early");
      in.resize(std::min(kPieceBytes, member.packed_bytes - read));
      HR_RETURN_IF_ERROR(source_->Read(offset + read, in));
      read += in.size();
      stream.next_in = reinterpret_cast<Bytef*>(in.data());
      stream.avail_in = static_cast<uInt>(in.size());
    }
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    code = inflate(&stream, Z_NO_FLUSH);
    if (code != Z_OK && code != Z_STREAM_END) return Corrupt(*source_, "a member's packed bytes are broken");
    HR_RETURN_IF_ERROR(checked(Bytes(out).first(out.size() - stream.avail_out)));
  }
  return {};
}

}  // namespace headrace
