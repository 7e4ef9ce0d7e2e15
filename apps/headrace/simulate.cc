// headrace simulate
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <optional>

#include "base/file.h"
#include "base/log.h"
#include "command.h"
#include "engine/step_cost_file.h"
#include "exit_code.h"
#include "simulate/decide_again.h"
#include "simulate/replay.h"
#include "simulate/replay_report.h"
#include "simulate/traffic.h"
#include "trace/trace_reader.h"

namespace headrace {
namespace {

constexpr size_t kDrawnRequests = 1000;

uint64_t SeedOf(const Settings& settings) {
  return settings.Has("seed") ? static_cast<uint64_t>(settings.Integer("seed")) : 1;
}

// A file's constants, or a large GPU's; single ones from flags.
Result<StepCost> CostFrom(const Settings& settings) {
  StepCostConstants c;
  if (const std::string path = settings.Text("cost"); !path.empty()) {
    HR_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kStepCostFileBytesMax));
    HR_ASSIGN_OR_RETURN(const StepCostFile file, ParseStepCost(text));
    c = file.constants;
  }
  const auto set = [&](const char* option, double* value) {
    if (settings.Has(option)) *value = settings.Number(option);
  };
  set("step-us", &c.step_us);
  set("prompt-row-us", &c.prompt_row_us);
  set("decode-row-us", &c.decode_row_us);
  set("context-token-ns", &c.context_token_ns);
  return StepCost::Make(c);
}

Result<ReplayOptions> OptionsFrom(const Settings& settings) {
  ReplayOptions o;
  HR_ASSIGN_OR_RETURN(o.machine.cost, CostFrom(settings));
  const int64_t context = settings.Integer("ctx");
  if (context > 0) o.machine.context = context;
  o.machine.kv_tokens = settings.Integer("kv-tokens");
  o.machine.sequences_max = static_cast<int32_t>(settings.Integer("max-sequences"));
  const auto shared = static_cast<int32_t>(settings.Integer("max-batch-tokens"));
  o.machine.batch_tokens_max = std::max(shared, static_cast<int32_t>(settings.Integer("prompt-batch-tokens")));
  o.shared_tokens_max = shared;
  o.waiting_max = static_cast<int32_t>(settings.Integer("max-waiting"));
  if (settings.Text("order") == "first-come") o.order = QueueOrder::kFirstCome;
  o.prefix_cache = settings.Text("prefix-cache") == "on";
  o.answer_limit = settings.Integer("answer-limit");
  o.queue_timeout_s = settings.Number("queue-timeout");
  o.brown_out_wait = static_cast<TimeNs>(settings.Number("brown-out") * kNsPerSecond);
  o.itl_target = static_cast<TimeNs>(settings.Number("itl-target") * kNsPerSecond);
  o.target = {.ttft = static_cast<TimeNs>(settings.Number("ttft-target") * kNsPerSecond),
              .tpot = static_cast<TimeNs>(settings.Number("tpot-target") * kNsPerSecond)};
  o.seed = SeedOf(settings);
  if (settings.Switch("faults")) o.faults = kBadDay;
  o.check = settings.Switch("check");
  return o;
}

Result<std::vector<RecordedRequest>> Drawn(const Settings& settings) {
  const auto requests = static_cast<size_t>(settings.Integer("requests"));
  return DrawTraffic({.arrivals = {.kind = ArrivalKind::kGamma,
                                   .per_second = settings.Number("rate") * settings.Number("speed"),
                                   .variation = settings.Number("burstiness"),
                                   .seed = SeedOf(settings)},
                      .requests = requests > 0 ? requests : kDrawnRequests,
                      .prompt_tokens = settings.Integer("prompt-tokens"),
                      .output_tokens = settings.Integer("answer-tokens"),
                      .tenants = static_cast<int32_t>(settings.Integer("tenants")),
                      .seed = SeedOf(settings)});
}

Result<std::vector<RecordedRequest>> TrafficFrom(const Settings& settings) {
  const std::string path = settings.Text("trace");
  if (path.empty()) return Drawn(settings);
  HR_ASSIGN_OR_RETURN(const auto source, OpenFile(path));
  HR_ASSIGN_OR_RETURN(Trace trace, LoadTrace(*source));
  const auto requests = static_cast<size_t>(settings.Integer("requests"));
  if (requests > 0 && requests < trace.requests.size()) trace.requests.resize(requests);
  if (settings.Text("arrivals") == "spread") SpreadArrivals(SeedOf(settings), &trace.requests);
  ScaleArrivals(settings.Number("speed"), &trace.requests);
  return std::move(trace.requests);
}

double Seconds() { return static_cast<double>(SystemClock().Now()) / kNsPerSecond; }

// The log of a server, decided again.
int DecideAgainCommand(const std::string& path) {
  const auto source = OpenFile(path);
  if (!source) return Complain(source.error());
  const auto log = LoadDecisions(**source);
  if (!log) return Complain(log.error());
  if (log->setup.drafts_max > 0)
    return Complain({ErrorCode::kUnsupported, "a log with drafts cannot be decided again: serve with --speculation off",
                     "decisions", 0});
  const DecidedAgain again = DecideAgain(*log);
  if (!again.difference.empty()) {
    fmt::print("step {} is decided in another way: {}\n", again.first_difference + 1, again.difference);
    return kExitFailure;
  }
  fmt::print("the same decisions: {} steps, {} chunks and tokens of {} requests, {} preemptions\n", again.steps,
             again.spans, again.requests, again.preemptions);
  return kExitOk;
}

}  // namespace

int SimulateCommand(const Invocation& invocation) {
  StartLog("warn", LogFormat::kText);  // standard output belongs to the report
  if (const std::string log = invocation.settings.Text("decisions"); !log.empty()) return DecideAgainCommand(log);
  const auto options = OptionsFrom(invocation.settings);
  if (!options) return Complain(options.error());
  const auto traffic = TrafficFrom(invocation.settings);
  if (!traffic) return Complain(traffic.error());
  const double begin = Seconds();
  const auto report = Replay(*traffic, *options);
  if (!report) return Complain(report.error());
  const double wall = Seconds() - begin;
  const bool json = invocation.settings.Switch("json");
  fmt::print("{}", json ? ReplayAsJson(*report, wall) : ReplayAsText(*report, *options, wall));
  return kExitOk;
}

}  // namespace headrace
