#include "simulate/decide_again.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "base/random.h"
#include "engine/engine.h"
#include "executor/scripted/script.h"
#include "kv_cache/block_name.h"

namespace headrace {
namespace {

constexpr uint64_t kBytes = 256;  // tokens of the vocabulary that end nothing

// Token ids from which the names in the log can be read again: a block begins with the 16 bytes of its name. Names, not
// only which are equal, decide what the cache remembers of evicted blocks.
class TokensByName {
 public:
  explicit TokensByName(const Decisions& log) {
    for (const StepDecision& step : log.steps)
      for (const DecidedEnd& end : step.ended) names_[end.request] = &end.blocks;
  }
  int32_t At(uint64_t request, int64_t position) const {
    const auto names = names_.find(request);
    const auto block = static_cast<size_t>(position / kBlockTokens);
    const auto offset = static_cast<uint64_t>(position % kBlockTokens);
    if (names == names_.end() || block >= names->second->size())
      return static_cast<int32_t>(KeyedRandom(SplitMix64(request), static_cast<uint64_t>(position)) % kBytes);
    const RecordedBlock& name = (*names->second)[block];
    return static_cast<int32_t>((offset % 16 < 8 ? name.high : name.low) >> (offset % 8 * 8) & 0xff);
  }

 private:
  std::unordered_map<uint64_t, const std::vector<RecordedBlock>*> names_;
};

BlockName NameIn(BlockIds ids) {
  BlockName name;
  for (size_t i = 0; i < 8; ++i) {
    name.high |= static_cast<uint64_t>(ids[i]) << (8 * i);
    name.low |= static_cast<uint64_t>(ids[i + 8]) << (8 * i);
  }
  return name;
}

// Answers as the log has it: each request ends in the step in which it ended.
class LoggedExecutor final : public Executor {
 public:
  LoggedExecutor(const DecisionSetup& setup, const TokensByName& tokens, std::function<void()> compute)
      : tokens_(tokens), compute_(std::move(compute)) {
    description_.model = description_.kernels = description_.fingerprint = "log";
    description_.vocab_size = kScriptFirstPiece;
    description_.context = setup.context;
    description_.kv_blocks = setup.kv_blocks;
    description_.rows_max = setup.rows_max;
    description_.logit_rows_max = setup.logit_rows_max;
    description_.sequences_max = setup.sequences_max;
  }
  void Begin(const StepDecision* step) { step_ = step; }
  // The log's number of the engine's request.
  std::unordered_map<uint64_t, uint64_t> logged;

  const ExecutorDescription& Describe() const override { return description_; }
  Status Submit(const StepInput& input) override {
    input_ = &input;
    return {};
  }
  Result<const StepOutput*> Wait() override {
    compute_();
    if (step_->failed) return Fail(ErrorCode::kInternal, "as in the log");
    output_.results.resize(input_->samples.size());
    for (size_t i = 0; i < input_->samples.size(); ++i) output_.results[i].token = Draw(input_->samples[i]);
    return &output_;
  }
  void ReadBlock(int32_t, std::span<std::byte>) const override {}
  void WriteBlock(int32_t, std::span<const std::byte>) override {}

 private:
  int32_t Draw(const StepSample& sample) const {
    if (sample.target >= 0) return sample.target;
    const uint64_t request = logged.at(input_->spans[static_cast<size_t>(sample.span)].request);
    const auto end = std::ranges::find(step_->ended, request, &DecidedEnd::request);
    if (end != step_->ended.end()) return end->failed ? -1 : kScriptEnd;
    return tokens_.At(request, static_cast<int64_t>(sample.position));
  }

  const TokensByName& tokens_;
  const std::function<void()> compute_;
  ExecutorDescription description_;
  const StepDecision* step_ = nullptr;
  const StepInput* input_ = nullptr;
  StepOutput output_;
};

// What the engine decided in the step under way.
class Listener final : public DecisionSink {
 public:
  void OnSetup(const DecisionSetup&) override {}
  void OnStep(const StepDecision& step) override { heard = step; }
  StepDecision heard;
};

class Again {
 public:
  Again(const Decisions& log, std::unique_ptr<Tokenizer> tokenizer)
      : log_(log),
        tokenizer_(std::move(tokenizer)),
        tokens_(log),
        executor_(log.setup, tokens_, [this] { Compute(); }),
        engine_(executor_, *tokenizer_, clock_, OptionsOf(log.setup)) {}

  DecidedAgain Run() {
    for (const StepDecision& step : log_.steps) {
      executor_.Begin(step_ = &step);
      for (const DecidedArrival& arrival : step.arrivals) Arrive(arrival);
      for (const uint64_t request : step.cancelled)
        if (const auto stream = streams_.find(request); stream != streams_.end()) stream->second->Cancel();
      clock_.Set(step.began);  // what the engine reads when it begins to compute; the plan is told `now`
      listener_.heard = {};
      engine_.Step(step.now);
      result_.difference = Difference(step);
      if (!result_.difference.empty()) return result_;
      Count(step);
    }
    return result_;
  }

 private:
  EngineOptions OptionsOf(const DecisionSetup& setup) {
    return {.waiting_max = setup.waiting_max,
            .shared_tokens_max = setup.shared_tokens_max,
            .prefix_cache = setup.prefix_cache,
            .room_ahead = setup.room_ahead,
            .order = setup.first_come ? QueueOrder::kFirstCome : QueueOrder::kFair,
            .itl_target = setup.itl_target,
            .brown_out_wait = setup.brown_out_wait,
            .decisions = &listener_,
            .naming = NameIn};
  }

  void Arrive(const DecidedArrival& a) {
    clock_.Set(a.arrival);
    auto request = std::make_unique<EngineRequest>();
    for (int64_t p = 0; p < a.prompt_tokens; ++p) request->prompt.push_back(tokens_.At(a.request, p));
    request->max_tokens = a.max_tokens;
    request->prompt_logprobs = a.prompt_logits;
    request->top_logprobs = a.prompt_logits ? 0 : -1;
    request->place.band = static_cast<Band>(std::min(a.band, kBands - 1));
    request->place.position = std::min(a.position, kPositions - 1);
    request->place.tenant = a.tenant;
    request->place.weight = a.weight;
    request->place.start_before = a.start_before;
    request->place.deadline = a.deadline;
    request->finish_before = a.finish_before;
    if (a.arrival >= 0 && a.keep_until > a.arrival) request->keep_prompt = a.keep_until - a.arrival;
    auto stream = engine_.Submit(std::move(request), nullptr);
    if (!stream) {
      refused_.insert(a.request);
      return;
    }
    executor_.logged[(*stream)->id()] = a.request;
    streams_[a.request] = std::move(*stream);
    ++result_.requests;
  }

  // While the step computes.
  void Compute() {
    for (const DecidedArrival& arrival : step_->during) Arrive(arrival);
    clock_.Set(step_->end);
  }

  std::string Difference(const StepDecision& step) const {
    if (!refused_.empty()) return fmt::format("request {} is refused, which was let in", *refused_.begin());
    StepDecision heard = listener_.heard;
    for (DecidedSpan& span : heard.spans) span.request = executor_.logged.at(span.request);
    for (auto* list : {&heard.preempted, &heard.expired})
      for (uint64_t& request : *list) request = executor_.logged.at(request);
    if (heard.spans != step.spans) {
      const auto [a, b] = std::ranges::mismatch(heard.spans, step.spans);
      const auto said = [](const auto& at, const auto& spans) {
        return at == spans.end()
                   ? std::string("nothing more")
                   : fmt::format("{} tokens of request {} from {}", at->rows, at->request, at->first_position);
      };
      return fmt::format("it computes {}, in the log {}", said(a, heard.spans), said(b, step.spans));
    }
    if (heard.preempted != step.preempted) return "it preempts others";
    if (heard.expired != step.expired) return "others are too late";
    return "";
  }

  void Count(const StepDecision& step) {
    result_.first_difference = ++result_.steps;
    result_.spans += step.spans.size();
    result_.preemptions += step.preempted.size();
    for (const DecidedEnd& end : step.ended) streams_.erase(end.request);
  }

  const Decisions& log_;
  std::unique_ptr<Tokenizer> tokenizer_;
  VirtualClock clock_;
  const TokensByName tokens_;
  LoggedExecutor executor_;
  Listener listener_;
  Engine engine_;
  const StepDecision* step_ = nullptr;
  std::unordered_map<uint64_t, std::shared_ptr<EngineStream>> streams_;
  std::unordered_set<uint64_t> refused_;
  DecidedAgain result_;
};

}  // namespace

DecidedAgain DecideAgain(const Decisions& log) {
  auto tokenizer = Tokenizer::FromVocabulary(ScriptVocabulary({}));
  CHECK(tokenizer.has_value());
  return Again(log, std::move(*tokenizer)).Run();
}

}  // namespace headrace
