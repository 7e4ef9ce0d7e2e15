#include "kv_tier/block_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/check.h"

namespace headrace {
namespace {

constexpr size_t kNameChars = 32;
constexpr uint64_t kDiskPage = 4096;

std::string HexOf(const BlockName& name) { return fmt::format("{:016x}{:016x}", name.high, name.low); }

std::optional<BlockName> NameOf(std::string_view hex) {
  if (hex.size() != kNameChars) return std::nullopt;
  BlockName name;
  const char* const middle = hex.data() + kNameChars / 2;
  const auto high = std::from_chars(hex.data(), middle, name.high, 16);
  const auto low = std::from_chars(middle, hex.data() + kNameChars, name.low, 16);
  if (high.ptr != middle || low.ptr != hex.data() + kNameChars || HexOf(name) != hex) return std::nullopt;
  return name;
}

bool IsFan(std::string_view folder) {
  return folder.size() == 2 && folder.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

BlockFolder::BlockFolder(std::unique_ptr<FolderPort> port, std::unique_ptr<BlockSeal> seal, uint64_t bytes_max)
    : port_(std::move(port)),
      seal_(std::move(seal)),
      bytes_max_(bytes_max),
      file_bytes_((seal_->sealed_bytes() + kDiskPage - 1) / kDiskPage * kDiskPage),
      places_(static_cast<int32_t>(std::min<uint64_t>(bytes_max / file_bytes_, kBlocksMax))),
      space_(HexOf(seal_->space())) {}

Result<std::unique_ptr<BlockFolder>> BlockFolder::Open(std::unique_ptr<FolderPort> port,
                                                       std::unique_ptr<BlockSeal> seal, uint64_t bytes_max) {
  std::unique_ptr<BlockFolder> folder(new BlockFolder(std::move(port), std::move(seal), bytes_max));
  if (folder->places_ < 1)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--cache-disk is smaller than one block of this model, {} bytes", folder->file_bytes_),
                "cache-disk");
  HR_RETURN_IF_ERROR(folder->port_->MakeFolder(folder->space_));
  HR_RETURN_IF_ERROR(folder->port_->Lock(folder->space_));
  folder->sealed_.resize(folder->seal_->sealed_bytes());
  folder->FindOwn();
  folder->FindForeign();
  return folder;
}

// What is unfinished, of another size or beyond the places goes.
void BlockFolder::FindOwn() {
  std::vector<std::pair<int64_t, BlockName>> files;
  for (const FolderEntry& fan : port_->List(space_, kBlocksMax)) {
    if (!fan.is_folder || !IsFan(fan.name)) continue;
    const std::string folder = space_ + "/" + fan.name;
    for (const FolderEntry& file : port_->List(folder, kBlocksMax)) {
      const std::optional<BlockName> name = NameOf(file.name);
      const bool whole = name && file.bytes == seal_->sealed_bytes() && files.size() < kBlocksMax;
      if (whole) files.emplace_back(file.modified_ns, *name);
      if (!whole && (name || file.name.ends_with(kUnfinishedSuffix))) port_->Remove(folder + "/" + file.name);
    }
  }
  std::ranges::sort(files, [](const auto& a, const auto& b) { return a.first < b.first; });
  const size_t spare = files.size() - std::min(files.size(), static_cast<size_t>(places_));
  for (size_t i = 0; i < files.size(); ++i) {
    if (i < spare) {
      port_->Remove(PathOf(files[i].second));
    } else {
      found_.push_back(files[i].second);
    }
  }
  own_blocks_ = found_.size();
}

void BlockFolder::FindForeign() {
  for (const FolderEntry& space : port_->List("", kSpacesMax)) {
    if (space.is_folder && space.name != space_ && NameOf(space.name) && !port_->Locked(space.name))
      FindForeignSpace(space.name);
  }
  std::ranges::sort(foreign_, [](const Foreign& a, const Foreign& b) { return a.modified_ns > b.modified_ns; });
}

void BlockFolder::FindForeignSpace(const std::string& space) {
  for (const FolderEntry& fan : port_->List(space, kBlocksMax)) {
    if (!fan.is_folder || !IsFan(fan.name)) continue;
    const std::string folder = space + "/" + fan.name;
    for (const FolderEntry& file : port_->List(folder, kBlocksMax)) {
      if (file.is_folder || foreign_.size() == kBlocksMax) continue;
      if (!NameOf(file.name) && !file.name.ends_with(kUnfinishedSuffix)) continue;
      const uint64_t bytes = (file.bytes + kDiskPage - 1) / kDiskPage * kDiskPage;
      foreign_.push_back({folder + "/" + file.name, bytes, file.modified_ns});
      foreign_bytes_ += bytes;
    }
  }
}

void BlockFolder::MakeRoom() {
  while (!foreign_.empty() && (own_blocks_ + 1) * file_bytes_ + foreign_bytes_ > bytes_max_) {
    port_->Remove(foreign_.back().path);
    foreign_bytes_ -= foreign_.back().bytes;
    foreign_.pop_back();
  }
}

std::string BlockFolder::PathOf(const BlockName& name) const {
  const std::string hex = HexOf(name);
  return fmt::format("{}/{}/{}", space_, hex.substr(0, 2), hex);
}

Status BlockFolder::Write(const NamedBlock& block, std::span<const std::byte> payload, int64_t wanted_ns) {
  MakeRoom();
  const auto fan = static_cast<size_t>(block.name.high >> 56);
  if (!made_[fan]) {
    HR_RETURN_IF_ERROR(port_->MakeFolder(fmt::format("{}/{:02x}", space_, fan)));
    made_[fan] = true;
  }
  seal_->Seal(block, payload, sealed_);
  HR_RETURN_IF_ERROR(port_->Write(PathOf(block.name), sealed_, wanted_ns));
  ++own_blocks_;
  return {};
}

Status BlockFolder::Read(const NamedBlock& wanted, std::span<std::byte> payload, int64_t wanted_ns) {
  const std::string path = PathOf(wanted.name);
  Status status = port_->Read(path, sealed_);
  if (status) status = seal_->Open(wanted, sealed_, payload);
  if (!status && status.error().code == ErrorCode::kCorruptData) Remove(wanted.name);
  if (status) port_->SetModified(path, wanted_ns);
  return status;
}

void BlockFolder::Remove(const BlockName& name) {
  if (port_->Remove(PathOf(name)) && own_blocks_ > 0) --own_blocks_;
}

}  // namespace headrace
