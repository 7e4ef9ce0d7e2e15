#include "catalog/models_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "catalog/model_name.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

bool IsModelFile(std::string_view name) { return name.ends_with(".gguf") || name.ends_with(".safetensors"); }

std::error_code& Ignored() {
  thread_local std::error_code code;
  return code;
}

bool IsModelFolder(const fs::path& path) {
  return fs::is_directory(path, Ignored()) && fs::is_regular_file(path / "config.json", Ignored());
}

Error IoError(const std::string& doing, const std::error_code& code) {
  const bool denied = code == std::errc::permission_denied;
  return Error{denied ? ErrorCode::kPermissionDenied : ErrorCode::kIo, "cannot " + doing + ": " + code.message(),
               "models-dir", 0};
}

// Adds bytes and time of the file at `path`.
void Account(const std::string& path, InstalledModel& model) {
  struct stat info{};
  if (stat(path.c_str(), &info) != 0) return;
  model.bytes += static_cast<uint64_t>(info.st_size);
  model.modified_unix_seconds = std::max<int64_t>(model.modified_unix_seconds, info.st_mtim.tv_sec);
}

InstalledModel FolderModel(const fs::path& path) {
  InstalledModel model{.name = path.filename().string(), .path = path.string(), .files = {path.string()}};
  for (fs::directory_iterator at(path, Ignored()), end; at != end; at.increment(Ignored()))
    if (at->is_regular_file(Ignored())) Account(at->path().string(), model);
  return model;
}

}  // namespace

ModelsFolder ModelsFolder::Default() {
  if (std::string named = Environment("HEADRACE_MODELS_DIR"); !named.empty()) return ModelsFolder(std::move(named));
  if (fs::is_directory("models", Ignored())) return ModelsFolder("models");
  std::string data = Environment("XDG_DATA_HOME");
  // The XDG base directory specification ignores relative paths.
  if (!data.starts_with('/')) data = Environment("HOME") + "/.local/share";
  return ModelsFolder(data + "/headrace/models");
}

Status ModelsFolder::Create() const {
  std::error_code code;
  fs::create_directories(path_, code);
  if (code && !fs::is_directory(path_, Ignored())) return Fail(IoError("make the models folder " + path_, code));
  return {};
}

Status ModelsFolder::CheckInside(const std::string& path) const {
  if (!fs::is_symlink(path, Ignored())) return {};
  std::error_code code;
  const fs::path root = fs::canonical(path_, code), real = fs::canonical(path, code);
  const auto [root_end, at] = std::ranges::mismatch(root, real);
  if (!code && root_end == root.end()) return {};
  return Fail(ErrorCode::kInvalidArgument,
              "'" + EscapeForLog(fs::path(path).filename().string(), 60) +
                  "' in the models folder is a link that leads out of it; give the file's own path",
              "model");
}

Result<std::vector<InstalledModel>> ModelsFolder::List() const {
  std::error_code code;
  fs::directory_iterator at(path_, code);
  if (code == std::errc::no_such_file_or_directory) return std::vector<InstalledModel>();
  if (code) return Fail(IoError("read the models folder " + path_, code));
  std::vector<std::string> names;
  for (const fs::directory_iterator end; at != end; at.increment(code)) {
    if (names.size() == kModelsFolderEntriesMax)
      return Fail(ErrorCode::kTooLarge,
                  "the models folder " + path_ + " has more than " + std::to_string(kModelsFolderEntriesMax) +
                      " entries: move the models to a folder of their own, or name another one with --models-dir",
                  "models-dir");
    names.push_back(at->path().filename().string());
  }
  if (code) return Fail(IoError("read the models folder " + path_, code));
  std::ranges::sort(names);  // parts come in order
  std::map<std::string, InstalledModel> models;
  for (const std::string& file : names) {
    const fs::path path = fs::path(path_) / file;
    if (!CheckModelName(file) || !CheckInside(path.string())) continue;
    if (IsModelFolder(path)) {
      models.emplace(file, FolderModel(path));
      continue;
    }
    const bool partial = file.ends_with(".part");
    const std::string whole = partial ? file.substr(0, file.size() - 5) : file;
    if (!IsModelFile(whole) || !fs::is_regular_file(path, Ignored())) continue;
    const std::string name(ModelNameOfFile(whole));
    InstalledModel& model = models[name + (partial ? " part" : "")];
    if (model.path.empty()) model = {.name = name, .path = path.string(), .partial = partial};
    model.files.push_back(path.string());
    Account(path.string(), model);
  }
  std::vector<InstalledModel> out;
  for (auto& [key, model] : models) out.push_back(std::move(model));
  return out;
}

Result<std::optional<InstalledModel>> ModelsFolder::Find(std::string_view name) const {
  HR_RETURN_IF_ERROR(CheckModelName(name));
  for (const std::string_view ending : {"", ".gguf", ".safetensors"})
    HR_RETURN_IF_ERROR(CheckInside((fs::path(path_) / (std::string(name) + std::string(ending))).string()));
  HR_ASSIGN_OR_RETURN(std::vector<InstalledModel> models, List());
  for (InstalledModel& model : models)
    if (!model.partial && (model.name == name || fs::path(model.path).filename() == name)) return std::move(model);
  return std::nullopt;
}

Result<uint64_t> ModelsFolder::Remove(const InstalledModel& model) const {
  for (const std::string& file : model.files) {
    if (fs::is_symlink(file, Ignored()))
      return Fail(ErrorCode::kInvalidArgument, "'" + model.name + "' is a link; remove it by hand", "model");
    for (fs::directory_iterator at(file, Ignored()), end; at != end; at.increment(Ignored()))
      if (at->is_directory(Ignored()))
        return Fail(ErrorCode::kInvalidArgument, "'" + model.name + "' holds other folders; remove it by hand",
                    "model");
  }
  for (const std::string& file : model.files) {
    std::error_code code;
    for (const char* beside : {".part", ".part.source", ".source"}) fs::remove(file + beside, Ignored());
    fs::remove_all(file, code);
    if (code) return Fail(IoError("remove " + fs::path(file).filename().string(), code));
  }
  return model.bytes;
}

Result<std::string> ModelsFolder::PathForNew(std::string_view file_name) const {
  HR_RETURN_IF_ERROR(CheckModelName(file_name));
  if (!IsModelFile(file_name))
    return Fail(ErrorCode::kInvalidArgument,
                "'" + EscapeForLog(file_name, 60) + "' is no model file: its name must end in .gguf or .safetensors",
                "model");
  std::string path = (fs::path(path_) / file_name).string();
  if (fs::is_symlink(path, Ignored()))
    return Fail(ErrorCode::kInvalidArgument,
                "'" + std::string(file_name) + "' in the models folder is a link; remove it first", "model");
  return path;
}

}  // namespace headrace
