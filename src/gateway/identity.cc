#include "gateway/identity.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <cmath>
#include <optional>
#include <toml++/toml.h>

#include "base/file.h"

namespace headrace {
namespace {

constexpr char kHowTo[] = "the key file holds SHA-256 hashes; make one with: printf %s \"$KEY\" | sha256sum";

std::optional<std::string> FromHex(std::string_view hex) {
  if (hex.size() != 2 * SHA256_DIGEST_LENGTH) return std::nullopt;
  std::string out;
  for (size_t i = 0; i < hex.size(); i += 2) {
    const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; };
    const int high = digit(hex[i]), low = digit(hex[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
  }
  return out;
}

std::optional<Band> BandNamed(std::string_view name) {
  if (name == "critical") return Band::kCritical;
  if (name == "high") return Band::kHigh;
  if (name == "normal") return Band::kNormal;
  if (name == "batch") return Band::kBatch;
  return std::nullopt;
}

std::string Sha256(std::string_view text) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

}  // namespace

Result<KeyStore> KeyStore::Load(const std::string& path) {
  HR_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kKeyFileBytesMax));
  return Parse(text, path.substr(path.rfind('/') + 1));
}

Result<KeyStore> KeyStore::Parse(std::string_view text, const std::string& file_name) {
  toml::table table;
  try {
    table = toml::parse(text);
  } catch (const toml::parse_error& e) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{} line {}: {}", file_name, e.source().begin.line, e.description()));
  }
  const toml::array* entries = table["keys"].as_array();
  if (entries == nullptr || entries->empty()) return Fail(ErrorCode::kInvalidArgument, fmt::format("{} has no [[keys]]; {}", file_name, kHowTo), "keys");
  if (entries->size() > kKeysMax) return Fail(ErrorCode::kTooLarge, fmt::format("{} has more than {} keys", file_name, kKeysMax), "keys");
  KeyStore store;
  for (size_t i = 0; i < entries->size(); ++i) {
    const std::string where = fmt::format("keys[{}]", i);
    const toml::table* entry = (*entries)[i].as_table();
    if (entry == nullptr) return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: {} is not a table", file_name, where), where);
    for (const auto& [name, value] : *entry) {
      const std::string_view k = name.str();
      if (k != "name" && k != "sha256" && k != "tenant" && k != "highest_band" && k != "weight") {
        return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: {} has an unknown field '{}'", file_name, where, k), where);
      }
    }
    Key key;
    const auto hash = FromHex((*entry)["sha256"].value_or(std::string_view()));
    if (!hash) return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: {} needs sha256 with 64 hex digits; {}", file_name, where, kHowTo), where);
    key.sha256 = *hash;
    key.identity.key_name = (*entry)["name"].value_or(where);
    key.identity.tenant = (*entry)["tenant"].value_or(std::string("default"));
    key.identity.weight = (*entry)["weight"].value_or(1.0);
    const auto band = BandNamed((*entry)["highest_band"].value_or(std::string_view("normal")));
    if (!band) return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: {}.highest_band must be critical, high, normal or batch", file_name, where), where);
    key.identity.highest_band = *band;
    if (!(key.identity.weight > 0 && std::isfinite(key.identity.weight))) {
      return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: {}.weight must be above 0", file_name, where), where);
    }
    store.keys_.push_back(std::move(key));
  }
  return store;
}

Result<Identity> KeyStore::Authenticate(std::string_view authorization) const {
  if (open()) return Identity{};
  constexpr std::string_view kScheme = "Bearer ";
  if (authorization.size() <= kScheme.size() || !authorization.starts_with(kScheme)) {
    return Fail(ErrorCode::kUnauthenticated, "You did not provide an API key. Send it in the header 'Authorization: Bearer KEY'.");
  }
  const std::string digest = Sha256(authorization.substr(kScheme.size()));
  const Key* found = nullptr;
  for (const Key& key : keys_) {
    if (CRYPTO_memcmp(key.sha256.data(), digest.data(), digest.size()) == 0) found = &key;
  }
  if (found == nullptr) return Fail(ErrorCode::kUnauthenticated, "Incorrect API key provided.");
  return found->identity;
}

}  // namespace headrace
