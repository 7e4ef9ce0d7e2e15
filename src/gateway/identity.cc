#include "gateway/identity.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <toml++/toml.h>
#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <set>

#include "base/file.h"
#include "base/log.h"

namespace headrace {
namespace {

constexpr char kEntry[] =
    "For each key write\n  [[keys]]\n  sha256 = \"HEX\"\nwhere HEX is what this prints: printf %s \"$KEY\" | sha256sum";
constexpr char kHowTo[] = "the key file holds SHA-256 hashes; make one with: printf %s \"$KEY\" | sha256sum";

std::optional<std::string> FromHex(std::string_view hex) {
  if (hex.size() != 2 * SHA256_DIGEST_LENGTH) return std::nullopt;
  std::string out;
  for (size_t i = 0; i < hex.size(); i += 2) {
    const auto digit = [](char c) {
      return c >= '0' && c <= '9'   ? c - '0'
             : c >= 'a' && c <= 'f' ? c - 'a' + 10
             : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                    : -1;
    };
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
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

// One table of [[keys]]. Errors name file, entry and field, never the value: it may be a key put there by mistake.
struct KeyEntry {
  const std::string& file_name;
  const std::string where;
  const toml::table* table;

  [[nodiscard]] std::unexpected<Error> Wrong(std::string_view what) const {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: {} {}", file_name, where, what), where);
  }

  Status Text(const char* field, std::string* out) const {
    const toml::node* node = table->get(field);
    if (node == nullptr) return {};
    const auto text = node->value_exact<std::string>();
    if (!text || text->empty() || text->size() > kKeyTextBytesMax)
      return Wrong(fmt::format("has a {} that is not a text of 1 to {} bytes", field, kKeyTextBytesMax));
    *out = *text;
    return {};
  }

  Status ReadBand(const char* field, Band standard, Band* out) const {
    std::string name;
    HR_RETURN_IF_ERROR(Text(field, &name));
    const auto band = name.empty() ? standard : BandNamed(name);
    if (!band) return Wrong(fmt::format("has a {} that is not critical, high, normal or batch", field));
    *out = *band;
    return {};
  }

  Status Read(std::string* sha256, Identity* identity) const {
    if (table == nullptr) return Wrong("is not a table");
    for (const auto& [name, value] : *table) {
      const std::string_view k = name.str();
      constexpr std::string_view kFields[] = {"name",   "sha256",      "tenant",      "highest_band",   "standard_band",
                                              "weight", "waiting_max", "cache_group", "cache_retention"};
      if (std::ranges::find(kFields, k) == std::end(kFields)) {
        return Wrong(fmt::format(
            "has an unknown field '{}'; it may have name, sha256, tenant, highest_band, standard_band, weight, "
            "waiting_max, cache_group and cache_retention",
            EscapeForLog(k, 64)));
      }
    }
    std::string hex;
    identity->key_name = where;
    HR_RETURN_IF_ERROR(Text("sha256", &hex));
    HR_RETURN_IF_ERROR(Text("name", &identity->key_name));
    HR_RETURN_IF_ERROR(Text("tenant", &identity->tenant));
    HR_RETURN_IF_ERROR(Text("cache_group", &identity->cache_group));
    const auto hash = FromHex(hex);
    if (!hash) return Wrong(fmt::format("needs sha256 with 64 hex digits; {}", kHowTo));
    *sha256 = *hash;
    HR_RETURN_IF_ERROR(ReadBand("highest_band", Band::kNormal, &identity->highest_band));
    const Band usual = std::max(Band::kNormal, identity->highest_band);
    HR_RETURN_IF_ERROR(ReadBand("standard_band", usual, &identity->standard_band));
    if (identity->standard_band < identity->highest_band)
      return Wrong("has a standard_band that is more urgent than its highest_band");
    const toml::node* waiting = table->get("waiting_max");
    if (waiting != nullptr) {
      const auto most = waiting->value_exact<int64_t>();
      if (!most || *most < 1 || *most > INT32_MAX) return Wrong("has a waiting_max that is not a whole number above 0");
      identity->waiting_max = static_cast<int32_t>(*most);
    }
    const toml::node* retention = table->get("cache_retention");
    if (retention != nullptr && !retention->is_boolean())
      return Wrong("has a cache_retention that is not true or false");
    identity->cache_retention = retention != nullptr && retention->value_or(false);
    const toml::node* weight = table->get("weight");
    if (weight != nullptr) identity->weight = weight->is_number() ? weight->value_or(0.0) : 0;
    if (!(identity->weight > 0 && std::isfinite(identity->weight)))
      return Wrong("has a weight that is not a number above 0");
    return {};
  }
};

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
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{} line {} is not TOML: {}. {}", file_name,
                                                         e.source().begin.line, e.description(), kEntry));
  }
  const toml::array* entries = table["keys"].as_array();
  if (entries == nullptr || entries->empty())
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{} has no [[keys]]. {}", file_name, kEntry), "keys");
  if (entries->size() > kKeysMax)
    return Fail(ErrorCode::kTooLarge, fmt::format("{} has more than {} keys", file_name, kKeysMax), "keys");
  KeyStore store;
  std::set<std::string> hashes;
  for (size_t i = 0; i < entries->size(); ++i) {
    KeyEntry entry{file_name, fmt::format("keys[{}]", i), (*entries)[i].as_table()};
    Key key;
    HR_RETURN_IF_ERROR(entry.Read(&key.sha256, &key.identity));
    if (!hashes.insert(key.sha256).second) return entry.Wrong("repeats the sha256 of an earlier entry");
    store.keys_.push_back(std::move(key));
  }
  return store;
}

Result<Identity> KeyStore::Authenticate(std::string_view authorization) const {
  if (open()) return Identity{};
  constexpr std::string_view kScheme = "bearer ";  // in any case (RFC 9110, 11.1)
  const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  if (authorization.size() <= kScheme.size() ||
      !std::ranges::equal(authorization.substr(0, kScheme.size()), kScheme, same)) {
    return Fail(ErrorCode::kUnauthenticated,
                "You did not provide an API key. Send it in the header 'Authorization: Bearer KEY'.");
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
