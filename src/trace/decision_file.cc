// Logs of decisions as files; see decision_log.h.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "base/log.h"
#include "trace/decision_log.h"
#include "trace/line_reader.h"

namespace headrace {
namespace {

class DecisionFile final : public DecisionSink {
 public:
  explicit DecisionFile(std::FILE* file) : file_(file) {}
  ~DecisionFile() override { std::fclose(file_); }

  void OnSetup(const DecisionSetup& setup) override {
    line_.clear();
    AppendSetup(setup, &line_);
    Write();
  }
  void OnStep(const StepDecision& step) override {
    line_.clear();
    AppendDecision(step, &line_);
    Write();
  }

 private:
  void Write() {
    if (failed_) return;
    // To the kernel at once: a server that is killed leaves whole lines.
    failed_ = std::fwrite(line_.data(), 1, line_.size(), file_) != line_.size() || std::fflush(file_) != 0;
    if (failed_) LOG_WARN("the log of decisions ends here: it cannot be written");
  }

  std::FILE* const file_;
  std::string line_;
  bool failed_ = false;
};

}  // namespace

Result<std::unique_ptr<DecisionSink>> CreateDecisionLog(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr)
    return Fail(ErrorCode::kInvalidArgument,
                "the log of decisions cannot be written: " + std::generic_category().message(errno), "decision-log");
  return std::make_unique<DecisionFile>(file);
}

Result<Decisions> LoadDecisions(const ByteSource& source, size_t steps_max) {
  LineReader lines(source);
  HR_ASSIGN_OR_RETURN(const auto first, lines.Next());
  auto setup = ParseSetup(first.value_or(""));
  if (!setup) return Fail(lines.At(setup.error().code, setup.error().message));
  Decisions decisions{.setup = *setup, .steps = {}};
  for (;;) {
    HR_ASSIGN_OR_RETURN(const auto line, lines.Next());
    if (!line) return decisions;
    if (decisions.steps.size() == steps_max) {
      return Fail(
          lines.At(ErrorCode::kTooLarge, fmt::format("a log that is decided again has {} steps at most", steps_max)));
    }
    auto step = ParseDecision(*line);
    if (!step) return Fail(lines.At(step.error().code, step.error().message));
    decisions.steps.push_back(std::move(*step));
  }
}

}  // namespace headrace
