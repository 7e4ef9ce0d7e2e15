#include "model_choice.h"

#include <unistd.h>

#include <utility>

#include "base/clock.h"
#include "catalog/catalog.h"
#include "interrupt.h"

namespace headrace {
namespace {

constexpr char kDefaultModel[] = "smollm2";

Result<std::string> DefaultModel(const ModelsFolder& folder) {
  HR_ASSIGN_OR_RETURN(auto models, folder.List());
  std::erase_if(models, [](const InstalledModel& m) { return m.partial; });
  return models.size() == 1 ? models.front().name : std::string(kDefaultModel);
}

bool CanBePulled(const std::string& wanted, const Catalog& catalog) {
  switch (ClassifyReference(wanted)) {
    case ModelReference::kHub:
    case ModelReference::kUrl:
      return true;
    case ModelReference::kName:
      return catalog.Find(wanted) != nullptr;
    case ModelReference::kPath:
      break;
  }
  return false;
}

}  // namespace

ModelsFolder FolderOf(const Settings& settings) {
  const std::string named = settings.Text("models-dir");
  return named.empty() ? ModelsFolder::Default() : ModelsFolder(named);
}

Result<PulledModel> PullWithProgress(const Settings& settings, const std::string& reference) {
  const ModelsFolder folder = FolderOf(settings);
  HR_ASSIGN_OR_RETURN(const Catalog catalog, Catalog::Load(folder.path()));
  const InterruptWatch watch;
  const SystemClock clock;
  StderrProgress progress(clock, isatty(STDERR_FILENO) != 0);
  const PullPorts ports = SystemPullPorts(&InterruptWatch::Interrupted);
  auto pulled = Puller(catalog, folder, ports, progress)
                    .Pull(reference, {.offline = settings.Switch("offline"),
                                      .sha256 = settings.Text("sha256"),
                                      .hub = HubOptions::FromEnvironment()});
  progress.EndFile();
  return pulled;
}

Result<ModelChoice> ChooseModel(const Settings& settings, const std::string& wanted) {
  if (wanted.starts_with("script:")) return ModelChoice{.path = wanted};
  const ModelsFolder folder = FolderOf(settings);
  HR_ASSIGN_OR_RETURN(const Catalog catalog, Catalog::Load(folder.path()));
  std::string reference = wanted;
  if (reference.empty()) {
    HR_ASSIGN_OR_RETURN(reference, DefaultModel(folder));
  }
  ModelChoice choice{.name = ClassifyReference(reference) == ModelReference::kName ? reference : std::string()};
  const bool fetchable = CanBePulled(reference, catalog);
  if (ClassifyReference(reference) == ModelReference::kName || !fetchable) {
    auto path = ResolveModel(reference, catalog, folder);
    if (path) return ModelChoice{std::move(*path), choice.name};
    if (!fetchable || path.error().code != ErrorCode::kNotFound) return Fail(path.error());
  }
  HR_ASSIGN_OR_RETURN(PulledModel pulled, PullWithProgress(settings, reference));
  choice.path = std::move(pulled.path);
  return choice;
}

}  // namespace headrace
