// Inside the room only: owners for what the Rust library hands out, and its statuses as errors.
#pragma once

#include <textshim.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace headrace {

inline const uint8_t* ShimBytes(std::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }

// A buffer that the library fills and frees. Passed as `out` or `err` of one call.
class ShimBuffer {
 public:
  ShimBuffer() = default;
  ~ShimBuffer() { ts_buf_free(&buf_); }
  ShimBuffer(const ShimBuffer&) = delete;
  ShimBuffer& operator=(const ShimBuffer&) = delete;

  ts_buf* raw() { return &buf_; }
  std::string_view view() const { return {reinterpret_cast<const char*>(buf_.data), buf_.len}; }

 private:
  ts_buf buf_{nullptr, 0, 0};
};

class ShimIds {
 public:
  ShimIds() = default;
  ~ShimIds() { ts_ids_free(&ids_); }
  ShimIds(const ShimIds&) = delete;
  ShimIds& operator=(const ShimIds&) = delete;

  ts_ids* raw() { return &ids_; }
  std::vector<int32_t> ToVector() const { return std::vector<int32_t>(ids_.data, ids_.data + ids_.len); }

 private:
  ts_ids ids_{nullptr, 0, 0};
};

// The error of a call that did not end with TS_OK. `invalid` is the code of bytes that are wrong: kCorruptData for a
// model's file, kInvalidArgument for a request.
Error ShimError(ts_status status, const ShimBuffer& err, ErrorCode invalid, std::string field = {});

}  // namespace headrace
