#include <algorithm>
#include <set>

#include "kv_tier/folder_port.h"

namespace headrace {

Status MemoryFolder::Lock(const std::string&) {
  if (all_.locked) return Fail(ErrorCode::kConflict, "another process uses it");
  return {};
}

std::vector<FolderEntry> MemoryFolder::List(const std::string& path, size_t entries_max) {
  std::vector<FolderEntry> entries;
  std::set<std::string> folders;
  const std::string prefix = path.empty() ? "" : path + "/";
  for (const auto& [name, file] : all_.files) {
    if (!name.starts_with(prefix)) continue;
    const std::string rest = name.substr(prefix.size());
    if (const size_t slash = rest.find('/'); slash != std::string::npos) {
      if (folders.insert(rest.substr(0, slash)).second) entries.push_back({rest.substr(0, slash), 0, 0, true});
    } else {
      entries.push_back({rest, file.bytes.size(), file.modified_ns, false});
    }
  }
  if (entries.size() > entries_max) entries.resize(entries_max);
  return entries;
}

Status MemoryFolder::Write(const std::string& path, std::span<const std::byte> bytes, int64_t modified_ns) {
  if (all_.full) return Fail(ErrorCode::kIo, "no space left on device");
  const size_t kept = all_.cut ? bytes.size() / 2 : bytes.size();
  all_.files[path] = {{bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(kept)}, modified_ns};
  return {};
}

Status MemoryFolder::Read(const std::string& path, std::span<std::byte> out) {
  const auto it = all_.files.find(path);
  if (it == all_.files.end()) return Fail(ErrorCode::kNotFound, "no such file");
  if (it->second.bytes.size() != out.size()) return Fail(ErrorCode::kCorruptData, "a cached block has another size");
  std::ranges::copy(it->second.bytes, out.begin());
  return {};
}

void MemoryFolder::SetModified(const std::string& path, int64_t modified_ns) {
  if (const auto it = all_.files.find(path); it != all_.files.end()) it->second.modified_ns = modified_ns;
}

}  // namespace headrace
