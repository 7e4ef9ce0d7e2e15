#include "kv_cache/block_name.h"

#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "base/planted.h"

namespace headrace {
namespace {

static_assert(std::endian::native == std::endian::little, "SipHash reads little-endian words");

struct SipState {
  uint64_t v0, v1, v2, v3;

  void Round() {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  }
  void Add(uint64_t word) {
    v3 ^= word;
    Round();
    Round();
    v0 ^= word;
  }
  uint64_t Finish() {
    for (int i = 0; i < 4; ++i) Round();
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

// A field with its length before it, so that no two lists of fields read the same.
void AppendField(std::string& out, std::string_view field) {
  const uint64_t size = field.size();
  out.append(reinterpret_cast<const char*>(&size), sizeof(size));
  out.append(field);
}

}  // namespace

BlockName SipHash128(const BlockKey& key, std::span<const std::byte> bytes) {
  SipState s{key.low ^ 0x736f6d6570736575ull, key.high ^ 0x646f72616e646f6dull ^ 0xee, key.low ^ 0x6c7967656e657261ull,
             key.high ^ 0x7465646279746573ull};
  const size_t whole = bytes.size() / 8 * 8;
  for (size_t at = 0; at < whole; at += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, 8);
    s.Add(word);
  }
  uint64_t last = static_cast<uint64_t>(bytes.size()) << 56;
  for (size_t at = whole; at < bytes.size(); ++at) last |= static_cast<uint64_t>(bytes[at]) << (8 * (at - whole));
  s.Add(last);
  s.v2 ^= 0xee;
  BlockName name;
  name.low = s.Finish();
  s.v1 ^= 0xdd;
  name.high = s.Finish();
  return name;
}

BlockName RootName(const BlockKey& key, std::string_view fingerprint, std::string_view adapter,
                   std::string_view name_space) {
  std::string all;
  for (const std::string_view field : {fingerprint, adapter, HEADRACE_PLANTED(7) ? std::string_view() : name_space})
    AppendField(all, field);
  return SipHash128(key, std::as_bytes(std::span(all)));
}

BlockName NameOfBlock(const BlockKey& key, const BlockName& parent, BlockIds ids) {
  std::array<std::byte, sizeof(BlockName) + kBlockTokens * sizeof(int32_t)> bytes;
  std::memcpy(bytes.data(), &parent, sizeof(parent));
  std::memcpy(bytes.data() + sizeof(parent), ids.data(), ids.size_bytes());
  return SipHash128(key, bytes);
}

}  // namespace headrace
