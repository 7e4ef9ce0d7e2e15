// Sealed blocks as files, one each: SPACE/xx/NAME below the cache folder, where SPACE tells key, model and version
// (block_seal.h) and NAME is the block's. A file appears whole under its name or not at all; what is not what was
// written does not open and is removed. Blocks of other spaces, left by another model, version or key, count against
// the same limit of bytes and are removed first, the oldest before others; a space that another process has locked is
// left alone.
//
// The caller keeps the index (kv_cache/tier_index.h): it writes no name that is held and removes what it gives up.
// One thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kv_tier/block_seal.h"
#include "kv_tier/folder_port.h"

namespace headrace {

class BlockFolder {
 public:
  static constexpr size_t kBlocksMax = 1 << 20;  // of one space, and of all others together
  static constexpr size_t kSpacesMax = 1024;     // that are looked at

  // kInvalidArgument when not one block fits, kConflict when another process has the space; else the system's error.
  static Result<std::unique_ptr<BlockFolder>> Open(std::unique_ptr<FolderPort> port, std::unique_ptr<BlockSeal> seal,
                                                   uint64_t bytes_max);

  uint64_t payload_bytes() const { return seal_->payload_bytes(); }
  // Of one file.
  uint64_t file_bytes() const { return file_bytes_; }
  int32_t places() const { return places_; }
  // Found at Open, at most as many as there are places; the least recently wanted first.
  const std::vector<BlockName>& found() const { return found_; }
  uint64_t foreign_blocks() const { return foreign_.size(); }
  uint64_t foreign_bytes() const { return foreign_bytes_; }

  // `wanted_ns`: when it was wanted last, for the order of a later Open.
  Status Write(const NamedBlock& block, std::span<const std::byte> payload, int64_t wanted_ns);
  // kNotFound, kCorruptData (then it is removed), kIo.
  Status Read(const NamedBlock& wanted, std::span<std::byte> payload, int64_t wanted_ns);
  void Remove(const BlockName& name);

 private:
  struct Foreign {
    std::string path;
    uint64_t bytes = 0;
    int64_t modified_ns = 0;
  };
  BlockFolder(std::unique_ptr<FolderPort> port, std::unique_ptr<BlockSeal> seal, uint64_t bytes_max);
  void FindOwn();
  void FindForeign();
  void FindForeignSpace(const std::string& space);
  void MakeRoom();
  std::string PathOf(const BlockName& name) const;

  const std::unique_ptr<FolderPort> port_;
  const std::unique_ptr<BlockSeal> seal_;
  const uint64_t bytes_max_;
  const uint64_t file_bytes_;
  const int32_t places_;
  std::string space_;
  std::array<bool, 256> made_{};   // folders of the space
  std::vector<std::byte> sealed_;  // scratch
  std::vector<BlockName> found_;
  uint64_t own_blocks_ = 0;
  std::vector<Foreign> foreign_;  // the oldest last
  uint64_t foreign_bytes_ = 0;
};

}  // namespace headrace
