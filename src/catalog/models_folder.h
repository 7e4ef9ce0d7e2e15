// The folder where pulled models lie, under readable names and never rewritten. A model is a .gguf or .safetensors file
// (numbered parts count as one model), or a folder with config.json. No name leads outside: links out of the folder are
// not followed (field fault O-39). No state but the path: any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace headrace {

constexpr size_t kModelsFolderEntriesMax = 100'000;

struct InstalledModel {
  std::string name;                // without ".gguf" and part numbers
  std::string path;                // of the first part, or the folder
  std::vector<std::string> files;  // paths of all parts; of a folder, itself
  uint64_t bytes = 0;
  int64_t modified_unix_seconds = 0;
  bool partial = false;  // NAME.part: a pull that has not ended
};

class ModelsFolder {
 public:
  explicit ModelsFolder(std::string path) : path_(std::move(path)) {}
  // $HEADRACE_MODELS_DIR, else models/ of the working directory if it is there, else
  // $XDG_DATA_HOME/headrace/models, else ~/.local/share/headrace/models.
  static ModelsFolder Default();

  const std::string& path() const { return path_; }
  // Makes the folder where it is missing.
  Status Create() const;
  // By name. A folder that is not there has no models.
  Result<std::vector<InstalledModel>> List() const;
  // By name, or by file name with its ending. nullopt: not there. kInvalidArgument: no model name, or a link that leads
  // out of the folder.
  Result<std::optional<InstalledModel>> Find(std::string_view name) const;
  // Removes the model's files and what an unfinished pull of it left; gives the bytes that became free. A link and a
  // model folder with other folders inside are refused.
  Result<uint64_t> Remove(const InstalledModel& model) const;
  // The path of a file that may be written. kInvalidArgument when its name is not plain, or a link stands there.
  Result<std::string> PathForNew(std::string_view file_name) const;

 private:
  Status CheckInside(const std::string& path) const;
  std::string path_;
};

}  // namespace headrace
