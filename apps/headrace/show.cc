// headrace show MODEL
#include <fmt/format.h>

#include <filesystem>

#include "base/cpu.h"
#include "catalog/catalog.h"
#include "catalog/pull.h"
#include "command.h"
#include "exit_code.h"
#include "json/json.h"
#include "model_choice.h"
#include "model_facts.h"

namespace headrace {

int ShowCommand(const Invocation& invocation) {
  if (invocation.words.empty())
    return Complain({ErrorCode::kInvalidArgument, "show needs a MODEL; headrace list shows what is here", "model", 0});
  const ModelsFolder folder = FolderOf(invocation.settings);
  const auto catalog = Catalog::Load(folder.path());
  if (!catalog) return Complain(catalog.error());
  const auto path = ResolveModel(invocation.words.front(), *catalog, folder);
  if (!path) return Complain(path.error());
  auto facts = ReadModelFacts(*path, AvailableMemoryBytes());
  if (!facts) return Complain(facts.error());
  // What the file does not say, the catalogue may know.
  const CatalogEntry* entry = catalog->FindByFile(std::filesystem::path(*path).filename().string());
  if (!facts->contains("licence") && entry != nullptr && !entry->licence.empty()) (*facts)["licence"] = entry->licence;
  if (invocation.settings.Switch("json"))
    fmt::print("{}\n", DumpJson(*facts));
  else
    fmt::print("{}", FactsAsText(*facts));
  return kExitOk;
}

}  // namespace headrace
