// The secret of a deployment: 32 bytes in a file of its own, from which the keys of all that outlives the process are
// derived. An immutable value.
//
// HKDF with SHA-256: RFC 5869. Extract runs once for each use; its labels keep the uses apart.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace headrace {

class DeploymentKey {
 public:
  static constexpr size_t kBytes = 32;
  static constexpr size_t kFileBytesMax = 256;  // "headrace-key-1 HEX" and what an editor may add

  // Of this process alone.
  static DeploymentKey Draw();
  // Reads the file, or makes it (0600, its folder 0700): of several that make it at once all get the same key.
  // kPermissionDenied when others may read it; kInvalidArgument when it lies inside `cache_folder` (a key beside the
  // data protects nothing); kCorruptData when it holds no key.
  static Result<DeploymentKey> LoadOrMake(const std::string& path, const std::string& cache_folder);
  // $XDG_STATE_HOME/headrace/deployment.key, else ~/.local/state/headrace/deployment.key; "" without a home.
  static std::string DefaultPath();

  // Fills `out`, which other labels or infos fill otherwise.
  void Derive(std::string_view label, std::string_view info, std::span<std::byte> out) const;

 private:
  DeploymentKey() = default;
  std::array<std::byte, kBytes> secret_{};
};

}  // namespace headrace
