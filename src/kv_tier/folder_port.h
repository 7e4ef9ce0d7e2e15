// The few operations on files that the disk tier needs, as a port: tests damage, fill and cut through it, the simulator
// keeps its files in memory. Paths are relative to the folder that the port was made for, with '/' between parts.
// One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace headrace {

struct FolderEntry {
  std::string name;
  uint64_t bytes = 0;
  int64_t modified_ns = 0;  // since 1970
  bool is_folder = false;
};

class FolderPort {
 public:
  virtual ~FolderPort() = default;
  // Makes the folder and those above it, for the owner alone.
  virtual Status MakeFolder(const std::string& path) = 0;
  // kConflict when another process holds it. Held until the port is destroyed, also when the process is killed.
  virtual Status Lock(const std::string& path) = 0;
  // Whether another process holds it.
  virtual bool Locked(const std::string& path) = 0;
  // Regular files and folders, in any order, at most entries_max; empty when there is no such folder.
  virtual std::vector<FolderEntry> List(const std::string& path, size_t entries_max) = 0;
  // All or nothing: readers see no file, the old one or the new one, also after a kill. modified_ns is what List tells.
  virtual Status Write(const std::string& path, std::span<const std::byte> bytes, int64_t modified_ns) = 0;
  // kNotFound; kCorruptData unless the file has exactly the size of `out`; kIo.
  virtual Status Read(const std::string& path, std::span<std::byte> out) = 0;
  virtual void SetModified(const std::string& path, int64_t modified_ns) = 0;
  // Whether there was one.
  virtual bool Remove(const std::string& path) = 0;
};

// What a write that was cut leaves behind ends so.
constexpr std::string_view kUnfinishedSuffix = ".tmp";

// A folder of this machine, made when it is not there.
Result<std::unique_ptr<FolderPort>> OpenFolder(const std::string& path);

// Files in memory, for the simulator and for tests, which reach into them.
struct MemoryFiles {
  struct File {
    std::vector<std::byte> bytes;
    int64_t modified_ns = 0;
  };
  std::map<std::string, File> files;
  bool full = false;    // writes fail
  bool cut = false;     // writes keep the first half only and say nothing, as a power cut may
  bool locked = false;  // by another process
};

class MemoryFolder final : public FolderPort {
 public:
  // Borrows the files, which outlive it.
  explicit MemoryFolder(MemoryFiles& files) : all_(files) {}

  Status MakeFolder(const std::string&) override { return {}; }
  Status Lock(const std::string& path) override;
  bool Locked(const std::string&) override { return all_.locked; }
  std::vector<FolderEntry> List(const std::string& path, size_t entries_max) override;
  Status Write(const std::string& path, std::span<const std::byte> bytes, int64_t modified_ns) override;
  Status Read(const std::string& path, std::span<std::byte> out) override;
  void SetModified(const std::string& path, int64_t modified_ns) override;
  bool Remove(const std::string& path) override { return all_.files.erase(path) > 0; }

 private:
  MemoryFiles& all_;
};

}  // namespace headrace
