// The packed weights of one model as a file, so that the next start reads them instead of packing again.
//
// A file is [head][table of parts][SHA-256 of each segment][SHA-256 of all before], filled up to a page, then the bytes
// of the weight buffer. Head and table follow from the model file alone, so all of them are compared before anything is
// read, and every segment is hashed in the memory where it will be used. The hashes find damage, not forgery: who may
// write to the folder may choose the weights, as with the model file itself.
//
// The source key holds ModelFile::ContentHash and each file's size, inode and times of modification and change, since
// that hash is a sample: an edited, copied or restored model is packed again. A file that was changed within the grain
// of the clock is not cached. What is not on disk is hashed whole.
//
// Hashing is what it costs: 4.1 GB of Q4_0 take 3.6 s of processor time in user mode, packing them 1.9 s (measured on a
// busy machine, page cache warm), so that it gains only where packing or the disk is slower than that.
//
// One caller at a time; several processes may use one folder.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/compute_pool.h"
#include "base/result.h"
#include "weights/model_file.h"

namespace headrace {

// Raised whenever the bytes of a packed model change: order of parts, layout of panels, what is added to a norm.
// PackCacheTest.TheVersionNamesTheBytes compares them.
constexpr uint32_t kPackVersion = 2;
// Read, hashed and compared by one thread at a time.
constexpr uint64_t kPackSegmentBytes = 4ull << 20;

// Where a packed matrix or vector lies in the weight buffer.
struct PackedPart {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  int64_t rows = 0;  // 0: a vector of floats
  int64_t columns = 0;
  uint64_t dtype = 0;

  bool operator==(const PackedPart&) const = default;
};

class PackCache {
 public:
  // content_hash: ModelFile::ContentHash of `file`, which must outlive the cache. data_bytes: of the weight buffer.
  static Result<PackCache> Open(std::string folder, const ModelFile& file, std::string_view content_hash,
                                std::vector<PackedPart> parts, uint64_t data_bytes);

  // The name of the file in the folder: content hash, version and format.
  const std::string& file_name() const { return file_name_; }

  // Fills `weights`, of data_bytes. kNotFound: there is no such file, or none that opens. Any other error says why it
  // must not be used, and `weights` may hold anything.
  Status Read(ComputePool& pool, std::byte* weights) const;
  // Writes beside the target, syncs and renames: readers see the old file or the new one. kConflict: another process
  // writes it just now; kUnavailable: the model file has changed too lately or since Open.
  Status Write(ComputePool& pool, const std::byte* weights) const;

 private:
  using Digest = std::array<std::byte, 32>;
  PackCache() = default;

  uint64_t segments() const { return (data_bytes_ + kPackSegmentBytes - 1) / kPackSegmentBytes; }
  uint64_t HeadBytes() const;  // up to the data
  uint64_t file_bytes() const { return HeadBytes() + data_bytes_; }
  std::string path() const { return folder_ + "/" + file_name_; }
  // Head, table and `digests`, with their own hash, filled up to HeadBytes.
  std::vector<std::byte> MakeHead(std::span<const Digest> digests) const;
  Status CheckHead(const ByteSource& source, std::vector<Digest>* digests) const;
  Status CheckModelUnchanged() const;
  Status WriteFile(int fd, ComputePool& pool, const std::byte* weights) const;

  std::string folder_, file_name_;
  const ModelFile* file_ = nullptr;
  std::vector<FileState> states_;  // at Open
  Digest source_key_{};
  std::vector<PackedPart> parts_;
  uint64_t data_bytes_ = 0;
};

}  // namespace headrace
