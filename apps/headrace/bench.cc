// headrace bench engine|calibrate [MODEL]
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/cpu.h"
#include "base/file.h"
#include "base/log.h"
#include "bench/calibration.h"
#include "bench/engine_bench.h"
#include "bench/engine_report.h"
#include "command.h"
#include "config/option_value.h"
#include "exit_code.h"
#include "model_choice.h"

namespace headrace {
namespace {

constexpr size_t kBenchListMax = 16;
constexpr int64_t kBenchTokensMax = 1 << 20;
constexpr int64_t kBenchSequencesMax = 1024;

// "128,512" as numbers from `least` to `most`.
Result<std::vector<int32_t>> Numbers(const Settings& settings, const char* option, int64_t least, int64_t most) {
  std::vector<int32_t> out;
  const std::string text = settings.Text(option);
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    const auto number = ParseInteger(word);
    if (!number || *number < least || *number > most || out.size() == kBenchListMax)
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: '{}' is no list of at most {} whole numbers from {} to {}, such as 1,8,32",
                              settings.Get(option).place, EscapeForLog(text, 60), kBenchListMax, least, most),
                  option);
    out.push_back(static_cast<int32_t>(*number));
    begin = end + 1;
  }
  return out;
}

Result<EngineBenchOptions> OptionsFrom(const Settings& settings) {
  EngineBenchOptions options;
  const auto threads = static_cast<int>(settings.Integer("threads"));
  options.threads = threads > 0 ? threads : UsableCores();
  options.isa = settings.Text("isa");
  options.pack_folder = settings.Text("pack-cache");
  options.kv_type = settings.Text("kv-type") == "int8" ? KvType::kInt8 : KvType::kInt16;
  HR_ASSIGN_OR_RETURN(options.prompts, Numbers(settings, "prompt", 1, kBenchTokensMax));
  HR_ASSIGN_OR_RETURN(options.batches, Numbers(settings, "batch", 1, kBenchSequencesMax));
  HR_ASSIGN_OR_RETURN(options.depths, Numbers(settings, "depth", 0, kBenchTokensMax));
  options.step_tokens = static_cast<int32_t>(settings.Integer("max-batch-tokens"));
  options.repeats = static_cast<int>(settings.Integer("repeat"));
  return options;
}

void Progress(const std::string& what) {
  if (isatty(STDERR_FILENO) != 0) std::fprintf(stderr, "headrace: %s\n", what.c_str());
}

Result<std::unique_ptr<ModelFile>> OpenModel(const Invocation& invocation) {
  HR_ASSIGN_OR_RETURN(const ModelChoice model,
                      ChooseModel(invocation.settings, invocation.words.size() > 1 ? invocation.words[1] : ""));
  if (model.path.starts_with("script:"))
    return Fail(ErrorCode::kInvalidArgument, "bench measures a model, not a script", "model");
  return ModelFile::Open(model.path);
}

Result<EngineReport> Measure(const Invocation& invocation, const EngineBenchOptions& options) {
  const SystemClock clock;
  if (invocation.settings.Switch("probe")) return ProbeMachine(options, clock);
  HR_ASSIGN_OR_RETURN(const auto file, OpenModel(invocation));
  HR_ASSIGN_OR_RETURN(const auto bench, EngineBench::Open(*file, options, clock));
  return bench->Run(Progress);
}

Status Calibrate(const Invocation& invocation, const EngineBenchOptions& o) {
  const SystemClock clock;
  const Settings& settings = invocation.settings;
  HR_ASSIGN_OR_RETURN(const auto file, OpenModel(invocation));
  const CalibrationOptions options{
      .threads = o.threads, .isa = o.isa, .pack_folder = o.pack_folder, .kv_type = o.kv_type, .repeats = o.repeats};
  HR_ASSIGN_OR_RETURN(const auto calibration, Calibration::Open(*file, options, clock));
  HR_ASSIGN_OR_RETURN(const CalibrationReport report, calibration->Run(Progress));
  const std::string text = FormatStepCost(report.file);
  if (const std::string path = settings.Text("output"); !path.empty())
    HR_RETURN_IF_ERROR(WriteFileAtomically(path, text));
  fmt::print("{}", settings.Text("format") == "json" ? text : CalibrationAsMarkdown(report));
  return {};
}

}  // namespace

int BenchCommand(const Invocation& invocation) {
  StartLog("warn", LogFormat::kText);  // standard output belongs to the report
  const Settings& settings = invocation.settings;
  const std::string what = invocation.words.empty() ? "" : invocation.words[0];
  if (what != "engine" && what != "calibrate")
    return Complain({ErrorCode::kInvalidArgument,
                     "bench measures: headrace bench engine [MODEL], or headrace bench calibrate [MODEL]", "", 0});
  const auto options = OptionsFrom(settings);
  if (!options) return Complain(options.error());
  if (what == "calibrate") {
    const Status done = Calibrate(invocation, *options);
    return done ? kExitOk : Complain(done.error());
  }
  const auto report = Measure(invocation, *options);
  if (!report) return Complain(report.error());
  const std::string format = settings.Text("format");
  fmt::print("{}", format == "json"  ? ReportAsJson(*report)
                   : format == "csv" ? ReportAsCsv(*report)
                                     : ReportAsMarkdown(*report));
  return kExitOk;
}

}  // namespace headrace
