// Undoes gzip piece by piece, with the output counted against a limit, so that a bomb costs the limit and no more.
// One thread. Internal to net.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace headrace {

class GzipReader {
 public:
  enum class Outcome : uint8_t { kOk, kTooLarge, kCorrupt };
  GzipReader();
  ~GzipReader();

  // Appends what `bytes` decompress to. kTooLarge: `out` would grow above out_bytes_max; nothing more is decompressed.
  Outcome Append(std::string_view bytes, size_t out_bytes_max, std::string& out);
  // True when the last member is whole.
  bool complete() const { return complete_; }

 private:
  struct Zlib;
  std::unique_ptr<Zlib> zlib_;
  bool complete_ = false;
};

}  // namespace headrace
