#include "simulate/faults.h"

namespace headrace {
namespace {

// Keys of draws that belong to a request, not to a step.
constexpr uint64_t kCancelKey = 0x63616e63656cull;
constexpr uint64_t kReaderKey = 0x726561646572ull;
constexpr uint64_t kSlowReaderSteps = 100;
// What has been seen of requests that have long ended is forgotten.
constexpr size_t kSeenMax = 65'536;

double Share(uint64_t draw) { return static_cast<double>(draw >> 11) * 0x1p-53; }

}  // namespace

RequestState Faults::StateOf(uint64_t id) const {
  const auto seen = seen_.find(id);
  if (seen == seen_.end()) {
    const auto asked = asked_.find(id);
    return asked == asked_.end() || asked->second == step_ ? RequestState::kArrived : RequestState::kWaiting;
  }
  if (seen->second.step == step_) return seen->second.in_prompt ? RequestState::kInPrompt : RequestState::kDecoding;
  // Decodes come first, so whoever has none in a step was preempted, or ended with its last one.
  return seen->second.tokens ? RequestState::kPreempted : RequestState::kInPrompt;
}

std::optional<RequestState> Faults::Leaves(size_t index) const {
  const uint64_t draw = KeyedRandom(seed_ ^ kCancelKey, index);
  if (Share(draw) >= rates_.cancel) return std::nullopt;
  return static_cast<RequestState>(SplitMix64(draw) % kRequestStates);
}

bool Faults::CancelsNow(size_t index, uint64_t id) {
  const std::optional<RequestState> wanted = Leaves(index);
  if (!wanted || *wanted == RequestState::kEnded) return false;
  asked_.try_emplace(id, step_);
  if (StateOf(id) != *wanted) return false;
  // Not always at the first chance: a state has a begin, a middle and an end.
  if (*wanted != RequestState::kArrived && random_.Below(4) != 0) return false;
  ++cancelled_[static_cast<size_t>(*wanted)];
  return true;
}

bool Faults::CancelsEnded(size_t index) {
  if (Leaves(index) != RequestState::kEnded) return false;
  ++cancelled_[static_cast<size_t>(RequestState::kEnded)];
  return true;
}

bool Faults::HoldsBack(size_t index) const {
  return step_ % kSlowReaderSteps != 0 && rates_.slow_reader > 0 &&
         Share(KeyedRandom(seed_ ^ kReaderKey, index)) < rates_.slow_reader;
}

Status FaultyExecutor::Submit(const StepInput& input) {
  input_ = &input;
  ++faults_.step_;
  See(input);
  return inner_.Submit(input);
}

void FaultyExecutor::See(const StepInput& input) {
  if (faults_.seen_.size() > kSeenMax) {
    std::erase_if(faults_.seen_, [&](const auto& item) { return item.second.step + kSeenMax < faults_.step_; });
    std::erase_if(faults_.asked_, [&](const auto& item) { return item.second + kSeenMax < faults_.step_; });
  }
  for (const StepSpan& span : input.spans) {
    Faults::Seen& seen = faults_.seen_[span.request];
    seen.step = faults_.step_;
    seen.in_prompt = span.first_position + span.rows < span.prompt_tokens;
    seen.tokens = seen.tokens || !seen.in_prompt;
  }
}

Result<const StepOutput*> FaultyExecutor::Wait() {
  Result<const StepOutput*> inner = inner_.Wait();
  if (Happens(faults_.rates_.pause)) pass_(static_cast<TimeNs>(faults_.random_.Below(kPauseMost)));
  if (Happens(faults_.rates_.clock_jump)) pass_(static_cast<TimeNs>(faults_.random_.Below(kJumpMost)));
  if (Happens(faults_.rates_.step_error)) {
    ++faults_.step_errors_;
    return Fail(ErrorCode::kInternal, "a simulated fault of the executor");
  }
  if (!inner || faults_.rates_.token_error <= 0) return inner;
  output_ = **inner;
  for (size_t i = 0; i < output_.results.size(); ++i) {
    if (input_->samples[i].target < 0 && Happens(faults_.rates_.token_error)) output_.results[i].token = -1;
  }
  return &output_;
}

}  // namespace headrace
