// ModelFile::Open: from a path to the open files of a model.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <set>

#include "base/log.h"
#include "weights/json_scan.h"
#include "weights/limits.h"
#include "weights/model_file_builder.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;
using Sources = std::vector<std::unique_ptr<ByteSource>>;

// "name-00002-of-00003.gguf"
struct PartName {
  std::string stem;  // "name"
  uint32_t count;
};

std::optional<PartName> ParsePartName(std::string_view name) {
  constexpr std::string_view kPattern = "-00000-of-00000.gguf";  // 0: any digit
  if (name.size() < kPattern.size()) return std::nullopt;
  const std::string_view tail = name.substr(name.size() - kPattern.size());
  for (size_t i = 0; i < tail.size(); ++i) {
    const bool digit = tail[i] >= '0' && tail[i] <= '9';
    if (kPattern[i] == '0' ? !digit : tail[i] != kPattern[i]) return std::nullopt;
  }
  PartName part{std::string(name.substr(0, name.size() - kPattern.size())), 0};
  std::from_chars(tail.data() + 10, tail.data() + 15, part.count);
  return part;
}

Status AddFile(const fs::path& path, Sources& sources) {
  HR_ASSIGN_OR_RETURN(auto source, OpenFile(path.string()));
  sources.push_back(std::move(source));
  return {};
}

Status AddParts(const fs::path& folder, const PartName& part, Sources& sources) {
  if (part.count == 0 || part.count > kFilesMax) {
    return Fail(ErrorCode::kTooLarge, fmt::format("{}: a model of {} parts; 1 to {} are read",
                                                  EscapeForLog(part.stem, 100), part.count, kFilesMax));
  }
  for (uint32_t i = 1; i <= part.count; ++i) {
    HR_RETURN_IF_ERROR(AddFile(folder / fmt::format("{}-{:05}-of-{:05}.gguf", part.stem, i, part.count), sources));
  }
  return {};
}

// Opens the shards that the index names, each once, and then the index itself.
Status AddShards(const fs::path& folder, Sources& sources) {
  HR_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile((folder / kIndexFileName).string(), kIndexBytesMax));
  std::set<std::string> shards;
  HR_RETURN_IF_ERROR(VisitWeightMap(text, kIndexFileName, [&](const std::string&, const std::string& file) -> Status {
    HR_RETURN_IF_ERROR(CheckShardName(file, kIndexFileName));
    shards.insert(file);
    if (shards.size() <= kFilesMax) return {};
    return Fail(ErrorCode::kTooLarge, fmt::format("{} names more than {} files", kIndexFileName, kFilesMax));
  }));
  for (const std::string& shard : shards) HR_RETURN_IF_ERROR(AddFile(folder / shard, sources));
  return AddFile(folder / kIndexFileName, sources);
}

// Says what a folder without safetensors holds instead.
Error NoWeights(const fs::path& folder) {
  constexpr int kEntriesMax = 10'000;
  constexpr std::string_view kPickled[] = {".bin", ".pt", ".pth", ".ckpt", ".pkl"};
  std::error_code failed;
  int entries = 0;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end && entries < kEntriesMax;
       it.increment(failed), ++entries) {
    const std::string name = EscapeForLog(it->path().filename().string(), 100);
    const std::string extension = it->path().extension().string();
    if (extension == ".gguf" || extension == ".safetensors") {
      return Error{ErrorCode::kNotFound,
                   fmt::format("the folder has no model.safetensors, but it has {}: name that file", name),
                   {},
                   0};
    }
    if (std::ranges::find(kPickled, extension) != std::end(kPickled)) {
      return Error{
          ErrorCode::kUnsupported,
          fmt::format("the folder has no model.safetensors, only pickled weights ({}), which can run code when they "
                      "are loaded: convert the model to safetensors first, with a tool that you trust",
                      name),
          {},
          0};
    }
  }
  return Error{
      ErrorCode::kNotFound, fmt::format("the folder has neither model.safetensors nor {}", kIndexFileName), {}, 0};
}

Status AddFolder(const fs::path& folder, Sources& sources) {
  std::error_code ignored;
  if (fs::exists(folder / kIndexFileName, ignored)) {
    HR_RETURN_IF_ERROR(AddShards(folder, sources));
  } else if (fs::exists(folder / "model.safetensors", ignored)) {
    HR_RETURN_IF_ERROR(AddFile(folder / "model.safetensors", sources));
  } else {
    return Fail(NoWeights(folder));
  }
  for (const std::string_view text : kTextFileNames) {
    if (fs::exists(folder / text, ignored)) HR_RETURN_IF_ERROR(AddFile(folder / text, sources));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<ModelFile>> ModelFile::Open(const std::string& path) {
  if (path.empty() || path.find('\0') != std::string::npos) {
    return Fail(ErrorCode::kInvalidArgument, "the model's path is empty or holds a NUL");
  }
  const fs::path file(path);
  std::error_code ignored;
  Sources sources;
  if (fs::is_directory(file, ignored)) {
    HR_RETURN_IF_ERROR(AddFolder(file, sources));
  } else if (const auto part = ParsePartName(file.filename().string())) {
    HR_RETURN_IF_ERROR(AddParts(file.parent_path(), *part, sources));
  } else {
    HR_RETURN_IF_ERROR(AddFile(file, sources));
  }
  return FromSource(std::move(sources));
}

Result<std::unique_ptr<ModelFile>> ModelFile::FromSource(std::vector<std::unique_ptr<ByteSource>> sources) {
  return ModelFileBuilder().Build(std::move(sources));
}

}  // namespace headrace
