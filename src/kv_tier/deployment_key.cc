#include "kv_tier/deployment_key.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/core_names.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/check.h"
#include "base/file.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "headrace-key-1 ";

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool ParseHex(std::string_view hex, std::span<std::byte> out) {
  if (hex.size() != 2 * out.size()) return false;
  for (size_t i = 0; i < out.size(); ++i) {
    const int high = HexDigit(hex[2 * i]), low = HexDigit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    out[i] = static_cast<std::byte>(high << 4 | low);
  }
  return true;
}

std::string Hex(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte b : bytes) out += fmt::format("{:02x}", static_cast<unsigned>(b));
  return out;
}

bool LiesInside(const fs::path& path, const fs::path& folder) {
  std::error_code ignored;
  const fs::path inner = fs::weakly_canonical(fs::absolute(path, ignored), ignored);
  const fs::path outer = fs::weakly_canonical(fs::absolute(folder, ignored), ignored);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

Error KeyError(ErrorCode code, const std::string& path, std::string_view what) {
  return {code,
          fmt::format("the key of the cache, {}: {}. Name another file by --cache-key-file",
                      fs::path(path).filename().string(), what),
          "cache-key-file", 0};
}

// Links a finished file into place, so that a reader never sees half of one; who comes second keeps the first's.
Status MakeFile(const std::string& path, std::string_view content) {
  std::error_code failed;
  if (const fs::path folder = fs::path(path).parent_path(); !folder.empty() && !fs::exists(folder, failed)) {
    fs::create_directories(folder, failed);
    if (failed) return Fail(KeyError(ErrorCode::kIo, path, "its folder cannot be made: " + failed.message()));
    fs::permissions(folder, fs::perms::owner_all, failed);
  }
  const std::string temporary = fmt::format("{}.{}.tmp", path, getpid());
  HR_RETURN_IF_ERROR(WriteFileAtomically(temporary, content));
  const int linked = link(temporary.c_str(), path.c_str()) == 0 || errno == EEXIST ? 0 : errno;
  unlink(temporary.c_str());
  if (linked != 0) return Fail(KeyError(ErrorCode::kIo, path, std::strerror(linked)));
  return {};
}

}  // namespace

DeploymentKey DeploymentKey::Draw() {
  DeploymentKey key;
  CHECK_EQ(RAND_bytes(reinterpret_cast<unsigned char*>(key.secret_.data()), kBytes), 1);
  return key;
}

std::string DeploymentKey::DefaultPath() {
  std::string state = Environment("XDG_STATE_HOME");
  // The XDG base directory specification ignores relative paths.
  if (!state.starts_with('/')) {
    const std::string home = Environment("HOME");
    if (home.empty()) return "";
    state = home + "/.local/state";
  }
  return state + "/headrace/deployment.key";
}

Result<DeploymentKey> DeploymentKey::LoadOrMake(const std::string& path, const std::string& cache_folder) {
  if (path.empty()) return Fail(KeyError(ErrorCode::kInvalidArgument, "deployment.key", "there is no home folder"));
  if (!cache_folder.empty() && LiesInside(path, cache_folder))
    return Fail(KeyError(ErrorCode::kInvalidArgument, path, "it lies inside --cache-dir, beside what it protects"));
  struct stat info{};
  if (stat(path.c_str(), &info) != 0 && errno == ENOENT) {
    const DeploymentKey drawn = Draw();
    HR_RETURN_IF_ERROR(MakeFile(path, fmt::format("{}{}\n", kPrefix, Hex(drawn.secret_))));
    if (stat(path.c_str(), &info) != 0) return Fail(KeyError(ErrorCode::kIo, path, std::strerror(errno)));
  }
  if ((info.st_mode & 077) != 0)
    return Fail(
        KeyError(ErrorCode::kPermissionDenied, path, "others may read it (chmod 600 it, if it is still secret)"));
  HR_ASSIGN_OR_RETURN(std::string text, ReadWholeFile(path, kFileBytesMax));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  DeploymentKey key;
  if (!text.starts_with(kPrefix) || !ParseHex(std::string_view(text).substr(kPrefix.size()), key.secret_))
    return Fail(KeyError(ErrorCode::kCorruptData, path, "it holds no key of this program"));
  return key;
}

void DeploymentKey::Derive(std::string_view label, std::string_view info, std::span<std::byte> out) const {
  std::string all(label);
  all += '\0';
  all += info;
  EVP_KDF* const kdf = EVP_KDF_fetch(nullptr, "HKDF", nullptr);
  CHECK(kdf != nullptr);
  EVP_KDF_CTX* const context = EVP_KDF_CTX_new(kdf);
  char digest[] = "SHA256", salt[] = "headrace";
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, const_cast<std::byte*>(secret_.data()), kBytes),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, salt, sizeof(salt) - 1),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, all.data(), all.size()), OSSL_PARAM_construct_end()};
  CHECK_EQ(EVP_KDF_derive(context, reinterpret_cast<unsigned char*>(out.data()), out.size(), parameters), 1);
  EVP_KDF_CTX_free(context);
  EVP_KDF_free(kdf);
}

}  // namespace headrace
