// For the tests of this room: builds ZIP archives in memory.
#pragma once

#include <zlib.h>

#include <string>
#include <vector>

namespace headrace {

struct TestZipMember {
  std::string name;
  std::string bytes;
  bool deflate = true;
};

inline void AppendLe(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

inline std::string Deflated(const std::string& bytes) {
  std::string out(compressBound(bytes.size()) + 64, '\0');
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

inline std::string TestZip(const std::vector<TestZipMember>& members) {
  std::string out, directory;
  for (const TestZipMember& m : members) {
    const std::string packed = m.deflate ? Deflated(m.bytes) : m.bytes;
    std::string facts;  // from the method to the lengths: the same in both headers
    AppendLe(facts, m.deflate ? 8 : 0, 2);
    AppendLe(facts, 0, 4);
    AppendLe(facts, crc32(0, reinterpret_cast<const Bytef*>(m.bytes.data()), static_cast<uInt>(m.bytes.size())), 4);
    AppendLe(facts, packed.size(), 4);
    AppendLe(facts, m.bytes.size(), 4);
    AppendLe(facts, m.name.size(), 2);
    AppendLe(facts, 0, 2);
    const size_t offset = out.size();
    out.append("PK\3\4\x14\0\0\0", 8).append(facts).append(m.name).append(packed);
    directory.append("PK\1\2\x14\0\x14\0\0\0", 10).append(facts).append(10, '\0');
    AppendLe(directory, offset, 4);
    directory += m.name;
  }
  const size_t at = out.size();
  out += directory + std::string("PK\5\6\0\0\0\0", 8);
  AppendLe(out, members.size(), 2);
  AppendLe(out, members.size(), 2);
  AppendLe(out, directory.size(), 4);
  AppendLe(out, at, 4);
  return out + std::string(2, '\0');
}

}  // namespace headrace
