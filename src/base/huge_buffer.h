// Large anonymous memory for weights and KV pages: zeroed by the system on first touch, 2 MiB aligned, huge pages asked
// for (a third more bandwidth than 4 KiB pages when streaming weights). Moves, never copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/result.h"

namespace headrace {

class HugeBuffer {
 public:
  // kResourceExhausted-like errors say how much was asked for. `what` names the use in the message.
  static Result<HugeBuffer> Allocate(uint64_t bytes, const char* what);

  HugeBuffer() = default;
  ~HugeBuffer();
  HugeBuffer(HugeBuffer&& other) noexcept { *this = std::move(other); }
  HugeBuffer& operator=(HugeBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(mapping_, other.mapping_);
    std::swap(mapped_bytes_, other.mapped_bytes_);
    return *this;
  }

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
  void* mapping_ = nullptr;
  uint64_t mapped_bytes_ = 0;
};

}  // namespace headrace
