// A block as bytes that nobody without the key can read, make or change: AES-256-GCM (NIST SP 800-38D) over ids, keys
// and values, with the head as authenticated data.
//
//   head 64 B: magic, version, payload bytes, space, name, nonce      in the clear
//   tag  16 B
//   ids 256 B, payload                                                encrypted
//
// The key is derived from the deployment key, the numerics fingerprint, a block's size and the version; the space is a
// name for these four that tells nothing about the key. So a block of another model, of another version or of another
// deployment is told from a damaged one, and neither opens. A name is itself a keyed hash, ids stay secret. Nonces are
// drawn: 2^32 blocks under one key, 6 PB of them at 1.5 MB, meet twice with a chance below 2^-32.
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "kv_cache/named_block.h"
#include "kv_tier/deployment_key.h"

struct evp_cipher_ctx_st;

namespace headrace {

class BlockSeal {
 public:
  // Raised whenever the form of a sealed block or of the keys and values in it changes.
  static constexpr uint32_t kVersion = 1;
  static constexpr uint64_t kOverheadBytes = 64 + 16 + kBlockTokens * sizeof(int32_t);

  BlockSeal(const DeploymentKey& key, std::string_view fingerprint, uint64_t payload_bytes);
  ~BlockSeal();

  uint64_t payload_bytes() const { return payload_bytes_; }
  uint64_t sealed_bytes() const { return payload_bytes_ + kOverheadBytes; }
  const BlockName& space() const { return space_; }

  // REQUIRES: payload and out have their sizes.
  void Seal(const NamedBlock& block, std::span<const std::byte> payload, std::span<std::byte> out) const;
  // kCorruptData, and a payload of zeros, unless `sealed` is what Seal made of that very block.
  Status Open(const NamedBlock& wanted, std::span<const std::byte> sealed, std::span<std::byte> payload) const;

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  bool Decrypt(std::span<const std::byte> sealed, NamedBlock* found, std::span<std::byte> payload) const;

  const uint64_t payload_bytes_;
  std::array<std::byte, 32> key_{};
  BlockName space_;
  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
};

}  // namespace headrace
