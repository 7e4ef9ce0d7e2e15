#include "model/pack_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/check.h"

namespace headrace {
namespace {

static_assert(std::endian::native == std::endian::little, "the file holds numbers as they lie in memory");

constexpr uint64_t kPage = 4096;
constexpr char kMagic[8] = {'H', 'R', 'P', 'A', 'C', 'K', '\r', '\n'};

struct Head {
  char magic[8];
  uint64_t version;
  std::byte source_key[32];
  uint64_t parts;
  uint64_t data_bytes;
  uint64_t file_bytes;
};
static_assert(sizeof(Head) == 72 && sizeof(PackedPart) == 40, "no padding, whose bytes would be anything");

std::array<std::byte, 32> Sha256(std::span<const std::byte> bytes) {
  std::array<std::byte, 32> digest;
  size_t size = 0;
  CHECK_EQ(EVP_Q_digest(nullptr, "SHA256", nullptr, bytes.data(), bytes.size(),
                        reinterpret_cast<unsigned char*>(digest.data()), &size),
           1);
  return digest;
}

template <typename T>
void Append(std::vector<std::byte>& out, std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

Status SystemError(const char* doing, const std::string& name, int code) {
  return Fail(code == EACCES || code == EROFS ? ErrorCode::kPermissionDenied : ErrorCode::kIo,
              fmt::format("cannot {} {}: {}", doing, name, std::strerror(code)));
}

Status WriteAt(int fd, uint64_t offset, std::span<const std::byte> bytes, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t put = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return SystemError("write", name, errno);
    offset += static_cast<uint64_t>(put);
    bytes = bytes.subspan(static_cast<size_t>(put));
  }
  return {};
}

// Calls work(segment) on all threads until one fails; that error.
template <typename Work>
Status ForSegments(ComputePool& pool, uint64_t segments, Work&& work) {
  std::vector<Status> failures(static_cast<size_t>(pool.threads()));
  std::atomic<bool> failed{false};
  pool.Run([&](int worker) {
    pool.For(worker, static_cast<int64_t>(segments), [&](int64_t segment) {
      if (failed.load(std::memory_order_relaxed)) return;
      if (Status status = work(static_cast<uint64_t>(segment)); !status) {
        failures[static_cast<size_t>(worker)] = std::move(status);
        failed.store(true);
      }
    });
  });
  for (Status& status : failures) HR_RETURN_IF_ERROR(std::move(status));
  return {};
}

// A new file that only its owner reads, with a lock that dies with this process. One name for all processes: a file
// that a killed one left is used again, so that no more than one is ever left.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string path) : path_(std::move(path)) {}
  ~TemporaryFile() {
    if (fd_ < 0) return;
    if (owned_) unlink(path_.c_str());
    close(fd_);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  int fd() const { return fd_; }

  Status Open(const std::string& name) {
    fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd_ < 0) return SystemError("create", name, errno);
    // Whoever had the lock before may have renamed the file between our open and our lock: then it is not ours to cut.
    struct stat opened{}, named{};
    if (flock(fd_, LOCK_EX | LOCK_NB) != 0 || fstat(fd_, &opened) != 0 || stat(path_.c_str(), &named) != 0 ||
        opened.st_ino != named.st_ino)
      return Fail(ErrorCode::kConflict, fmt::format("another process writes {} just now", name));
    owned_ = true;
    if (ftruncate(fd_, 0) != 0) return SystemError("write", name, errno);
    return {};
  }
  Status Rename(const std::string& path, const std::string& name) {
    if (fsync(fd_) != 0) return SystemError("write", name, errno);
    if (rename(path_.c_str(), path.c_str()) != 0) return SystemError("rename", name, errno);
    owned_ = false;
    return {};
  }

 private:
  const std::string path_;
  int fd_ = -1;
  bool owned_ = false;
};

void SyncFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);  // a file system that cannot does not make the file worse
  close(fd);
}

}  // namespace

Result<PackCache> PackCache::Open(std::string folder, const ModelFile& file, std::string_view content_hash,
                                  std::vector<PackedPart> parts, uint64_t data_bytes) {
  PackCache cache;
  cache.folder_ = std::move(folder);
  cache.file_name_ = fmt::format("{}-v{}-{}.hrpack", content_hash.substr(0, 32), kPackVersion,
                                 file.format() == ModelFile::Format::kGguf ? "gguf" : "safetensors");
  cache.file_ = &file;
  cache.states_ = file.States();
  cache.parts_ = std::move(parts);
  cache.data_bytes_ = data_bytes;
  std::string source = fmt::format("headrace pack {} {}", kPackVersion, content_hash);
  for (const FileState& s : cache.states_)
    source += fmt::format(" {} {} {} {}", s.bytes, s.inode, s.modified_ns, s.changed_ns);
  if (cache.states_.empty()) {
    HR_ASSIGN_OR_RETURN(const std::string whole, file.FullHash());
    source += " whole " + whole;
  }
  cache.source_key_ = Sha256(std::as_bytes(std::span(source)));
  return cache;
}

uint64_t PackCache::HeadBytes() const {
  const uint64_t used = sizeof(Head) + parts_.size() * sizeof(PackedPart) + (segments() + 1) * sizeof(Digest);
  return (used + kPage - 1) / kPage * kPage;
}

std::vector<std::byte> PackCache::MakeHead(std::span<const Digest> digests) const {
  Head head{};
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  head.version = kPackVersion;
  std::ranges::copy(source_key_, head.source_key);
  head.parts = parts_.size();
  head.data_bytes = data_bytes_;
  head.file_bytes = file_bytes();
  std::vector<std::byte> out;
  out.reserve(HeadBytes());
  Append<Head>(out, std::span(&head, 1));
  Append<PackedPart>(out, parts_);
  Append<Digest>(out, digests);
  const Digest check = Sha256(out);
  Append<std::byte>(out, check);
  out.resize(HeadBytes());
  return out;
}

// What `source` has before its data must be what we would write, digests aside, and these must hash to what it says.
Status PackCache::CheckHead(const ByteSource& source, std::vector<Digest>* digests) const {
  const auto refuse = [](std::string why) { return Fail(ErrorCode::kCorruptData, std::move(why)); };
  Head head;
  if (source.size() < sizeof head) return refuse(fmt::format("it has {} bytes and no head", source.size()));
  HR_RETURN_IF_ERROR(source.Read(0, std::as_writable_bytes(std::span(&head, 1))));
  if (std::memcmp(head.magic, kMagic, sizeof kMagic) != 0) return refuse("it is not a packed model");
  if (head.version != kPackVersion)
    return refuse(fmt::format("it was made by another version ({}; this one makes {})", head.version, kPackVersion));
  if (!std::ranges::equal(head.source_key, source_key_))
    return refuse("it was made from another state of the model file, or the key in its head is damaged");
  if (head.parts != parts_.size() || head.data_bytes != data_bytes_ || head.file_bytes != file_bytes())
    return refuse("its sizes are not those of the model file");
  if (source.size() != file_bytes())
    return refuse(fmt::format("it has {} bytes and should have {}", source.size(), file_bytes()));
  std::vector<std::byte> found(HeadBytes());
  HR_RETURN_IF_ERROR(source.Read(0, found));
  digests->resize(segments());
  const size_t table_end = sizeof head + parts_.size() * sizeof(PackedPart);
  std::memcpy(digests->data(), found.data() + table_end, digests->size() * sizeof(Digest));
  const std::vector<std::byte> expected = MakeHead(*digests);
  if (!std::equal(found.begin(), found.begin() + static_cast<ptrdiff_t>(table_end), expected.begin()))
    return refuse("its table is not that of the model file");
  if (found != expected) return refuse("its list of hashes is damaged");
  return {};
}

Status PackCache::Read(ComputePool& pool, std::byte* weights) const {
  const auto opened = OpenFile(path());
  // What is more wrong with the folder than that, writing will say.
  if (!opened) return Fail(ErrorCode::kNotFound, opened.error().message);
  const ByteSource* const source = opened->get();
  std::vector<Digest> digests;
  HR_RETURN_IF_ERROR(CheckHead(*source, &digests));
  const uint64_t head_bytes = HeadBytes();
  return ForSegments(pool, segments(), [&](uint64_t segment) -> Status {
    const uint64_t begin = segment * kPackSegmentBytes;
    const std::span bytes(weights + begin, std::min(kPackSegmentBytes, data_bytes_ - begin));
    HR_RETURN_IF_ERROR(source->Read(head_bytes + begin, bytes));
    if (Sha256(bytes) == digests[segment]) return {};
    return Fail(ErrorCode::kCorruptData,
                fmt::format("the {} bytes from byte {} on are damaged", bytes.size(), head_bytes + begin));
  });
}

Status PackCache::CheckModelUnchanged() const {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const int64_t now_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  const auto fresh = [&](const FileState& s) { return s.changed_ns > now_ns - kFileStateGrainNs; };
  if (file_->States() != states_) return Fail(ErrorCode::kUnavailable, "the model file changed while it was read");
  if (std::ranges::any_of(states_, fresh))
    return Fail(ErrorCode::kUnavailable, "the model file was changed less than two seconds ago");
  return {};
}

Status PackCache::Write(ComputePool& pool, const std::byte* weights) const {
  HR_RETURN_IF_ERROR(CheckModelUnchanged());
  std::error_code failed;
  std::filesystem::create_directories(folder_, failed);
  if (failed) return SystemError("create", "the folder", failed.value());
  TemporaryFile temporary(path() + ".tmp");
  HR_RETURN_IF_ERROR(temporary.Open(file_name_));
  HR_RETURN_IF_ERROR(WriteFile(temporary.fd(), pool, weights));
  HR_RETURN_IF_ERROR(temporary.Rename(path(), file_name_));
  SyncFolder(folder_);
  return {};
}

Status PackCache::WriteFile(int fd, ComputePool& pool, const std::byte* weights) const {
  std::vector<Digest> digests(segments());
  const uint64_t head_bytes = HeadBytes();
  HR_RETURN_IF_ERROR(ForSegments(pool, segments(), [&](uint64_t segment) -> Status {
    const uint64_t begin = segment * kPackSegmentBytes;
    const std::span bytes(weights + begin, std::min(kPackSegmentBytes, data_bytes_ - begin));
    digests[segment] = Sha256(bytes);
    return WriteAt(fd, head_bytes + begin, bytes, file_name_);
  }));
  return WriteAt(fd, 0, MakeHead(digests), file_name_);
}

}  // namespace headrace
