#include "net/gzip_reader.h"

#include <zlib.h>

#include <array>

#include "base/check.h"

namespace headrace {

struct GzipReader::Zlib {
  z_stream stream{};
};

GzipReader::GzipReader() : zlib_(std::make_unique<Zlib>()) {
  CHECK_EQ(inflateInit2(&zlib_->stream, 15 + 16), Z_OK);  // 15: the largest window; 16: gzip framing, not zlib's
}

GzipReader::~GzipReader() { inflateEnd(&zlib_->stream); }

GzipReader::Outcome GzipReader::Append(std::string_view bytes, size_t out_bytes_max, std::string& out) {
  z_stream& z = zlib_->stream;
  // zlib does not write through it.
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  z.avail_in = static_cast<uInt>(bytes.size());
  std::array<char, 16 * 1024> block;
  for (;;) {
    if (complete_) {
      if (z.avail_in == 0) return Outcome::kOk;
      if (inflateReset(&z) != Z_OK) return Outcome::kCorrupt;  // gzip allows several members in a row
      complete_ = false;
    }
    z.next_out = reinterpret_cast<Bytef*>(block.data());
    z.avail_out = block.size();
    const int rc = inflate(&z, Z_NO_FLUSH);
    const size_t made = block.size() - z.avail_out;
    if (out.size() + made > out_bytes_max) return Outcome::kTooLarge;
    out.append(block.data(), made);
    if (rc == Z_STREAM_END) {
      complete_ = true;
    } else if (rc == Z_BUF_ERROR || (rc == Z_OK && z.avail_in == 0 && z.avail_out > 0)) {
      return Outcome::kOk;  // wants more input
    } else if (rc != Z_OK) {
      return Outcome::kCorrupt;
    }
  }
}

}  // namespace headrace
