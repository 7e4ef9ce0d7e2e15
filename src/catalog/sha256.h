// SHA-256 (FIPS 180-4) of bytes that come in pieces. One thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace headrace {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept = default;
  Sha256& operator=(Sha256&&) noexcept = default;

  void Update(std::span<const std::byte> bytes);
  // 64 lower-case hex digits. Afterwards the hash is that of no bytes again.
  std::string FinishHex();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* state) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> state_;
};

std::string Sha256Hex(std::string_view bytes);
// 64 hex digits, lower case.
bool IsSha256Hex(std::string_view text);

}  // namespace headrace
