#include "kv_tier/block_seal.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace headrace {
namespace {

constexpr char kMagic[8] = {'H', 'R', 'K', 'V', 'B', 'L', 'K', '\n'};
constexpr size_t kTagBytes = 16;
constexpr size_t kChunk = 1 << 30;  // OpenSSL counts in int

struct Head {
  char magic[8];
  uint32_t version;
  std::byte nonce[12];
  uint64_t payload_bytes;
  BlockName space, name;
};
static_assert(sizeof(Head) == 56 + 8, "no padding, whose bytes would be anything");
static_assert(BlockSeal::kOverheadBytes == sizeof(Head) + kTagBytes + sizeof(NamedBlock::ids));

const unsigned char* In(const void* bytes) { return static_cast<const unsigned char*>(bytes); }
unsigned char* Out(void* bytes) { return static_cast<unsigned char*>(bytes); }

// EVP_EncryptUpdate or EVP_DecryptUpdate over a span of any length.
template <typename Update>
bool Pass(Update update, EVP_CIPHER_CTX* context, std::span<const std::byte> from, std::byte* to) {
  while (!from.empty()) {
    const size_t bytes = std::min(from.size(), kChunk);
    int done = 0;
    if (update(context, Out(to), &done, In(from.data()), static_cast<int>(bytes)) != 1) return false;
    if (done != static_cast<int>(bytes)) return false;
    from = from.subspan(bytes);
    to += bytes;
  }
  return true;
}

}  // namespace

void BlockSeal::Free::operator()(evp_cipher_ctx_st* context) const { EVP_CIPHER_CTX_free(context); }

BlockSeal::BlockSeal(const DeploymentKey& key, std::string_view fingerprint, uint64_t payload_bytes)
    : payload_bytes_(payload_bytes), context_(EVP_CIPHER_CTX_new()) {
  CHECK(context_ != nullptr);
  const std::string info = fmt::format("{} {} {}", kVersion, payload_bytes, fingerprint);
  key.Derive("kv block seal", info, key_);
  key.Derive("kv block space", info, std::as_writable_bytes(std::span(&space_, 1)));
}

BlockSeal::~BlockSeal() = default;

void BlockSeal::Seal(const NamedBlock& block, std::span<const std::byte> payload, std::span<std::byte> out) const {
  CHECK_EQ(payload.size(), payload_bytes_);
  CHECK_EQ(out.size(), sealed_bytes());
  Head head{.version = kVersion, .payload_bytes = payload_bytes_, .space = space_, .name = block.name};
  std::memcpy(head.magic, kMagic, sizeof(kMagic));
  CHECK_EQ(RAND_bytes(Out(head.nonce), sizeof(head.nonce)), 1);
  std::memcpy(out.data(), &head, sizeof(head));
  std::byte* const tag = out.data() + sizeof(head);
  std::byte* const ids = tag + kTagBytes;

  EVP_CIPHER_CTX* const c = context_.get();
  int done = 0;
  CHECK_EQ(EVP_EncryptInit_ex(c, EVP_aes_256_gcm(), nullptr, In(key_.data()), Out(head.nonce)), 1);
  CHECK_EQ(EVP_EncryptUpdate(c, nullptr, &done, In(&head), sizeof(head)), 1);
  CHECK(Pass(EVP_EncryptUpdate, c, std::as_bytes(std::span(block.ids)), ids));
  CHECK(Pass(EVP_EncryptUpdate, c, payload, ids + sizeof(block.ids)));
  CHECK_EQ(EVP_EncryptFinal_ex(c, Out(ids), &done), 1);
  CHECK_EQ(EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, kTagBytes, tag), 1);
}

Status BlockSeal::Open(const NamedBlock& wanted, std::span<const std::byte> sealed,
                       std::span<std::byte> payload) const {
  CHECK_EQ(payload.size(), payload_bytes_);
  NamedBlock found;
  if (Decrypt(sealed, &found, payload) && found == wanted) return {};
  std::ranges::fill(payload, std::byte{0});  // what came out before the tag was checked may be anybody's
  return Fail(ErrorCode::kCorruptData, "a cached block is damaged");
}

bool BlockSeal::Decrypt(std::span<const std::byte> sealed, NamedBlock* found, std::span<std::byte> payload) const {
  if (sealed.size() != sealed_bytes()) return false;
  Head head;
  std::memcpy(&head, sealed.data(), sizeof(head));
  if (std::memcmp(head.magic, kMagic, sizeof(kMagic)) != 0 || head.version != kVersion || head.space != space_ ||
      head.payload_bytes != payload_bytes_)
    return false;
  found->name = head.name;
  const auto tag = sealed.subspan(sizeof(head), kTagBytes);
  const auto ids = sealed.subspan(sizeof(head) + kTagBytes, sizeof(found->ids));
  EVP_CIPHER_CTX* const c = context_.get();
  int done = 0;
  if (EVP_DecryptInit_ex(c, EVP_aes_256_gcm(), nullptr, In(key_.data()), In(head.nonce)) != 1) return false;
  if (EVP_DecryptUpdate(c, nullptr, &done, In(&head), sizeof(head)) != 1) return false;
  if (!Pass(EVP_DecryptUpdate, c, ids, std::as_writable_bytes(std::span(found->ids)).data())) return false;
  if (!Pass(EVP_DecryptUpdate, c, sealed.subspan(kOverheadBytes), payload.data())) return false;
  if (EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_SET_TAG, kTagBytes, const_cast<std::byte*>(tag.data())) != 1) return false;
  unsigned char rest[16];
  return EVP_DecryptFinal_ex(c, rest, &done) == 1;
}

}  // namespace headrace
