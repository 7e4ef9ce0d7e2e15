#include "catalog/sha256.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "base/check.h"

namespace headrace {

Sha256::Sha256() : state_(EVP_MD_CTX_new()) {
  CHECK(state_ != nullptr);
  CHECK_EQ(EVP_DigestInit_ex(state_.get(), EVP_sha256(), nullptr), 1);
}

Sha256::~Sha256() = default;

void Sha256::Free::operator()(evp_md_ctx_st* state) const { EVP_MD_CTX_free(state); }

void Sha256::Update(std::span<const std::byte> bytes) {
  CHECK_EQ(EVP_DigestUpdate(state_.get(), bytes.data(), bytes.size()), 1);
}

std::string Sha256::FinishHex() {
  static constexpr char kHex[] = "0123456789abcdef";
  std::array<unsigned char, 32> digest{};
  CHECK_EQ(EVP_DigestFinal_ex(state_.get(), digest.data(), nullptr), 1);
  CHECK_EQ(EVP_DigestInit_ex(state_.get(), EVP_sha256(), nullptr), 1);
  std::string out;
  for (const unsigned char c : digest) out += {kHex[c >> 4], kHex[c & 15]};
  return out;
}

std::string Sha256Hex(std::string_view bytes) {
  Sha256 hash;
  hash.Update(std::as_bytes(std::span(bytes)));
  return hash.FinishHex();
}

bool IsSha256Hex(std::string_view text) {
  return text.size() == 64 &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace headrace
