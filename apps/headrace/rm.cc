// headrace rm MODEL
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "catalog/catalog.h"
#include "catalog/model_name.h"
#include "catalog/progress.h"
#include "command.h"
#include "exit_code.h"
#include "model_choice.h"

namespace headrace {
namespace {

// By name, file name, or catalogue name; also what an unfinished pull left.
Result<InstalledModel> FindToRemove(const std::string& wanted, const ModelsFolder& folder) {
  if (wanted.contains('/'))
    return Fail(ErrorCode::kInvalidArgument,
                "rm removes models of the models folder, by name; '" + wanted + "' is a path: remove it by hand",
                "model");
  HR_ASSIGN_OR_RETURN(const Catalog catalog, Catalog::Load(folder.path()));
  const CatalogEntry* entry = catalog.Find(wanted);
  for (const std::string& name : {wanted, entry == nullptr ? wanted : entry->file}) {
    HR_ASSIGN_OR_RETURN(auto model, folder.Find(name));
    if (model) return std::move(*model);
    HR_ASSIGN_OR_RETURN(const auto all, folder.List());
    for (const InstalledModel& other : all)
      if (other.partial && other.name == ModelNameOfFile(name)) return other;
  }
  return Fail(ErrorCode::kNotFound,
              "there is no model '" + wanted + "' in the models folder; headrace list shows what is there", "model");
}

bool Confirmed(const InstalledModel& model) {
  fmt::print(stderr, "Remove {} ({})? [y/N] ", model.path, FormatBytes(model.bytes));
  std::fflush(stderr);
  const int answer = std::getchar();
  return answer == 'y' || answer == 'Y';
}

}  // namespace

int RmCommand(const Invocation& invocation) {
  if (invocation.words.empty())
    return Complain({ErrorCode::kInvalidArgument, "rm needs a MODEL; headrace list shows what is there", "model", 0});
  const ModelsFolder folder = FolderOf(invocation.settings);
  const auto model = FindToRemove(invocation.words.front(), folder);
  if (!model) return Complain(model.error());
  const bool ask = !invocation.settings.Switch("yes");
  if (ask && isatty(STDIN_FILENO) == 0)
    return Complain({ErrorCode::kInvalidArgument,
                     "rm asks before it removes " + model->path + ", and here is no terminal to ask on; give --yes",
                     "yes", 0});
  if (ask && !Confirmed(*model)) {
    fmt::print(stderr, "nothing was removed\n");
    return kExitFailure;
  }
  const auto freed = folder.Remove(*model);
  if (!freed) return Complain(freed.error());
  fmt::print("removed {}, {} freed\n", model->name, FormatBytes(*freed));
  return kExitOk;
}

}  // namespace headrace
