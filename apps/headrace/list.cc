// headrace list
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "catalog/catalog.h"
#include "catalog/progress.h"
#include "command.h"
#include "exit_code.h"
#include "json/json.h"
#include "model_choice.h"

namespace headrace {
namespace {

std::string CatalogName(const InstalledModel& model, const Catalog& catalog) {
  const CatalogEntry* entry = catalog.FindByFile(std::filesystem::path(model.path).filename().string());
  return entry == nullptr ? std::string() : entry->name;
}

void PrintJson(const std::vector<InstalledModel>& models, const Catalog& catalog) {
  Json out = Json::array();
  for (const InstalledModel& m : models)
    out.push_back({{"name", m.name},
                   {"catalog_name", CatalogName(m, catalog)},
                   {"path", m.path},
                   {"files", m.files.size()},
                   {"bytes", m.bytes},
                   {"modified", m.modified_unix_seconds},
                   {"partial", m.partial}});
  fmt::print("{}\n", DumpJson(out));
}

void PrintTable(const std::vector<InstalledModel>& models, const Catalog& catalog) {
  size_t width = 4;
  for (const InstalledModel& m : models) width = std::max(width, m.name.size());
  fmt::print("{:<{}}  {:>9}  {:<16}  {}\n", "NAME", width, "SIZE", "MODIFIED", "ALSO");
  for (const InstalledModel& m : models) {
    std::string also = CatalogName(m, catalog);
    if (m.partial) also = "unfinished; pull it again to resume";
    fmt::print("{:<{}}  {:>9}  {:%Y-%m-%d %H:%M}  {}\n", m.name, width, FormatBytes(m.bytes),
               fmt::localtime(static_cast<std::time_t>(m.modified_unix_seconds)), also);
  }
}

}  // namespace

int ListCommand(const Invocation& invocation) {
  const ModelsFolder folder = FolderOf(invocation.settings);
  const auto models = folder.List();
  if (!models) return Complain(models.error());
  const auto catalog = Catalog::Load(folder.path());
  if (!catalog) return Complain(catalog.error());
  if (invocation.settings.Switch("json")) {
    PrintJson(*models, *catalog);
    return kExitOk;
  }
  if (models->empty()) {
    fmt::print(stderr, "no models in {}. To fetch one: headrace pull NAME, where NAME is {}\n", folder.path(),
               fmt::join(catalog->Names(), ", "));
    return kExitOk;
  }
  PrintTable(*models, *catalog);
  return kExitOk;
}

}  // namespace headrace
