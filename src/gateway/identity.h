// Who is calling: the first stage of the pipeline. Keys come from a TOML file that holds only their SHA-256; without a
// file every caller is the tenant `default` and any key is accepted (clients send dummies). Immutable, thread-safe.
//
//   [[keys]]
//   name = "alice"                 # for logs
//   sha256 = "…64 hex digits…"     # printf %s "$KEY" | sha256sum
//   tenant = "team-a"              # default: "default"
//   highest_band = "high"          # critical, high, normal (default), batch
//   standard_band = "normal"       # of requests that ask for no priority or tier; default: normal, or highest_band
//   weight = 1.0                   # share within a band
//   waiting_max = 100              # requests of the tenant that may wait, over all bands: 429 above; default: no limit
//   cache_retention = true         # its prompt_cache_retention counts, so that it may keep others' blocks out;
//   default: false cache_group = "org"            # share cached prompts with other tenants of this group; default:
//   within the tenant
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "queueing/band.h"

namespace headrace {

struct Identity {
  std::string key_name;
  std::string tenant = "default";
  Band highest_band = Band::kHigh;
  Band standard_band = Band::kNormal;
  double weight = 1.0;
  int32_t waiting_max = 0;  // 0: no limit of its own
  bool cache_retention = true;
  std::string cache_group;  // "": cached prompts are shared within the tenant only
};

class KeyStore {
 public:
  // Lets everybody in.
  KeyStore() = default;
  // Errors name the entry and the field, never a key.
  static Result<KeyStore> Load(const std::string& path);
  static Result<KeyStore> Parse(std::string_view toml, const std::string& file_name);

  bool open() const { return keys_.empty(); }
  // `authorization`: the header's value ("Bearer KEY"). kUnauthenticated when a key is needed and none fits; compares
  // in constant time.
  Result<Identity> Authenticate(std::string_view authorization) const;

 private:
  struct Key {
    std::string sha256;  // 32 bytes
    Identity identity;
  };
  std::vector<Key> keys_;
};

constexpr size_t kKeysMax = 10'000;
constexpr size_t kKeyFileBytesMax = 4 << 20;
constexpr size_t kKeyTextBytesMax = 256;  // of a name, tenant or group

}  // namespace headrace
