// headrace doctor [MODEL]: plain lines to copy into a report; "!" marks what would not work.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/cpu.h"
#include "catalog/pull.h"
#include "command.h"
#include "executor/cpu/cpu_executor.h"
#include "exit_code.h"
#include "help.h"
#include "kernels/kernel_table.h"
#include "machine_facts.h"
#include "model_choice.h"

namespace headrace {
namespace {

// Larger models are loaded only when they are named: loading takes their size of memory.
constexpr uint64_t kUnaskedBytesMax = 1u << 30;

class Report {
 public:
  void Line(const char* name, const std::string& value) { fmt::print("  {:<16} {}\n", name, value); }
  void Trouble(const char* name, const std::string& value, int code = kExitFailure) {
    fmt::print("! {:<16} {}\n", name, value);
    if (code_ == kExitOk) code_ = code;
  }
  int exit_code() const { return code_; }

 private:
  int code_ = kExitOk;  // of the first trouble that prevents serving
};

void Kernels(const Settings& settings, Report& report) {
  std::string usable;
  for (const KernelTable* table : UsableKernels()) usable += (usable.empty() ? "" : ", ") + std::string(table->name);
  report.Line("kernels usable", usable);
  const auto chosen = ChooseKernels(settings.Text("isa"));
  if (chosen)
    report.Line("kernels chosen", std::string((*chosen)->name) +
                                      (settings.Has("isa") ? ", as told by " + settings.Get("isa").place : ""));
  else
    report.Trouble("kernels chosen", chosen.error().message);
}

void Port(const Settings& settings, Report& report) {
  const auto port = static_cast<uint16_t>(settings.Integer("port"));
  const std::string name = fmt::format("port {}", port);
  const std::string trouble = PortTrouble(port);
  if (trouble.empty()) return report.Line(name.c_str(), port == 0 ? "any free one" : "free");
  // Unless this port was asked for, another one works and nothing is broken.
  const bool asked = settings.Get("port").origin != SettingOrigin::kDefault;
  report.Trouble(name.c_str(), trouble + "; serve with --port N", asked ? kExitCannotServe : kExitOk);
}

void Folder(const ModelsFolder& folder, Report& report) {
  report.Line("models folder", std::filesystem::absolute(folder.path()).string());
  if (access(folder.path().c_str(), F_OK) != 0) return report.Line("", "not there yet; pull makes it");
  if (access(folder.path().c_str(), W_OK) != 0) report.Trouble("", "cannot be written: pull and rm will fail", kExitOk);
  const auto free = SystemPullPorts({}).free_bytes(folder.path());
  const auto models = folder.List();
  if (!models) return report.Trouble("", models.error().message);
  report.Line("", fmt::format("{} model(s), {} free", std::ranges::count(*models, false, &InstalledModel::partial),
                              free ? FormatBytes(*free) : "? B"));
}

// The model to compute the fingerprint of: the named one, else the smallest if it is small. "": none.
Result<std::string> ModelToCheck(const Invocation& invocation, const ModelsFolder& folder) {
  if (!invocation.words.empty()) {
    HR_ASSIGN_OR_RETURN(const Catalog catalog, Catalog::Load(folder.path()));
    return ResolveModel(invocation.words.front(), catalog, folder);
  }
  HR_ASSIGN_OR_RETURN(auto models, folder.List());
  std::erase_if(models, [](const InstalledModel& m) { return m.partial || m.bytes > kUnaskedBytesMax; });
  const auto smallest = std::ranges::min_element(models, {}, &InstalledModel::bytes);
  return smallest == models.end() ? std::string() : smallest->path;
}

Result<std::string> Fingerprint(const std::string& path, const Settings& settings) {
  HR_ASSIGN_OR_RETURN(const auto file, ModelFile::Open(path));
  HR_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(*file));
  const auto threads = static_cast<int>(settings.Integer("threads"));
  HR_ASSIGN_OR_RETURN(const auto executor, CpuExecutor::Load(*file, config,
                                                             {.threads = threads > 0 ? threads : UsableCores(),
                                                              .isa = settings.Text("isa"),
                                                              .rows_max = 16,
                                                              .logit_rows_max = 1,
                                                              .sequences_max = 1}));
  return executor->Describe().fingerprint;
}

int Model(const Invocation& invocation, const ModelsFolder& folder, Report& report) {
  const auto path = ModelToCheck(invocation, folder);
  if (!path) return Complain(path.error());
  if (path->empty()) {
    report.Line("fingerprint", "no model here to compute it from; name one, or headrace pull smollm2");
    return kExitOk;
  }
  const std::string file = std::filesystem::path(*path).filename().string();
  const auto fingerprint = Fingerprint(*path, invocation.settings);
  if (fingerprint)
    report.Line("fingerprint", *fingerprint + " (" + file + ")");
  else
    report.Trouble("fingerprint", file + ": " + fingerprint.error().message,
                   invocation.words.empty() ? kExitOk : kExitFailure);
  return kExitOk;
}

}  // namespace

int DoctorCommand(const Invocation& invocation) {
  Report report;
  fmt::print("{}\n", VersionLine());
  report.Line("processor", CpuModelName());
  report.Line("features", CpuFeatureNames());
  report.Line("compute threads", fmt::format("{} usable cores", UsableCores()));
  Kernels(invocation.settings, report);
  report.Line("memory free", FormatBytes(AvailableMemoryBytes()));
  report.Line("cgroup limits", CgroupLimits());
  report.Line("open files", OpenFileLimit());
  Port(invocation.settings, report);
  const ModelsFolder folder = FolderOf(invocation.settings);
  Folder(folder, report);
  const std::string pip = FindProgram("pip").empty() ? FindProgram("pip3") : FindProgram("pip");
  if (!pip.empty() || !FindProgram("python3").empty())
    report.Line("pip", pip.empty() ? "by python3 -m pip" : "found");
  else
    report.Trouble("pip", "not found: headrace pull smollm2 needs it (Debian: apt install python3-pip)", kExitOk);
  const int code = Model(invocation, folder, report);
  return code != kExitOk ? code : report.exit_code();
}

}  // namespace headrace
