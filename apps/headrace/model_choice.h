// Which model a command means, fetched when it is not here yet.
#pragma once

#include <string>

#include "base/result.h"
#include "catalog/models_folder.h"
#include "catalog/pull.h"
#include "config/settings.h"

namespace headrace {

ModelsFolder FolderOf(const Settings& settings);

struct ModelChoice {
  std::string path;
  std::string name;  // as typed, when that is a name; else ""
};

// "": the only model of the folder, else smollm2. "script:FILE" stays as it is. Fetches names of the catalogue, hf: and
// URLs unless --offline. Blocks; interrupted it gives kCancelled.
Result<ModelChoice> ChooseModel(const Settings& settings, const std::string& wanted);

// Fetches `reference` and says on stderr what happens.
Result<PulledModel> PullWithProgress(const Settings& settings, const std::string& reference);

}  // namespace headrace
