#include "executor/scripted/scripted_executor.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/check.h"
#include "base/random.h"

namespace headrace {
namespace {

// Conversations that are remembered; the oldest go when there are more (a finished request is never asked for again).
constexpr size_t kConversationsMax = 16'384;

}  // namespace

ScriptedExecutor::Sleeper ScriptedExecutor::RealSleeper() {
  return [](TimeNs time) { std::this_thread::sleep_for(std::chrono::nanoseconds(time)); };
}

ScriptedExecutor::ScriptedExecutor(Script script, Sleeper sleeper)
    : script_(std::move(script)), sleeper_(std::move(sleeper)) {
  description_.model = "script";
  description_.kernels = "script";
  description_.fingerprint = "script";
  description_.vocab_size = kScriptFirstPiece + static_cast<int32_t>(script_.pieces.size());
  description_.context = script_.context;
  description_.kv_blocks = script_.kv_blocks;
  description_.rows_max = script_.batch_tokens_max;
  description_.sequences_max = script_.sequences_max;
  description_.logit_rows_max = std::max(script_.sequences_max, 64);
  description_.threads = 0;
}

Status ScriptedExecutor::Submit(const StepInput& input) {
  input_ = &input;
  return {};
}

Result<const StepOutput*> ScriptedExecutor::Wait() {
  CHECK(input_ != nullptr);
  const StepInput& input = *input_;
  int64_t delay_us = script_.step_us;
  for (const StepSpan& span : input.spans) {
    if (span.first_position < span.prompt_tokens) delay_us += span.rows * script_.prefill_us_per_token;
    if (!script_.replies.empty()) ReadPrompt(input, span);
  }
  output_.results.resize(input.samples.size());
  for (size_t i = 0; i < input.samples.size(); ++i) Answer(input, input.samples[i], &output_.results[i], &delay_us);
  sleeper_(delay_us * kNsPerUs);
  return &output_;
}

void ScriptedExecutor::AppendText(int32_t token, std::string* out) const {
  if (token < 256) {
    *out += static_cast<char>(token);
  } else if (token == kScriptStart || token == kScriptEnd) {
    *out += token == kScriptStart ? "<|im_start|>" : "<|im_end|>";
  } else {
    *out += script_.pieces[static_cast<size_t>(token - kScriptFirstPiece)];
  }
}

void ScriptedExecutor::ReadPrompt(const StepInput& input, const StepSpan& span) {
  if (span.first_position >= span.prompt_tokens) return;
  if (conversations_.size() > kConversationsMax) {
    const uint64_t keep_from = span.request > kConversationsMax / 2 ? span.request - kConversationsMax / 2 : 0;
    std::erase_if(conversations_, [&](const auto& item) { return item.first < keep_from; });
  }
  Conversation& conversation = conversations_[span.request];
  if (conversation.reply != nullptr) return;  // computed again after a preemption
  if (span.first_position == 0) conversation.prompt.clear();
  const int32_t rows = std::min(span.rows, span.prompt_tokens - span.first_position);
  for (int32_t r = 0; r < rows; ++r)
    AppendText(input.token_ids[static_cast<size_t>(span.first_row + r)], &conversation.prompt);
  if (span.first_position + rows == span.prompt_tokens) {
    conversation.reply = Choose(conversation.prompt);
    conversation.prompt = {};
  }
}

const ScriptReply* ScriptedExecutor::Choose(const std::string& prompt) const {
  for (const ScriptReply& reply : script_.replies) {
    if (prompt.find(reply.match) != std::string::npos) return &reply;
  }
  return &script_.replies.back();
}

void ScriptedExecutor::Answer(const StepInput& input, const StepSample& sample, SampleResult* result,
                              int64_t* delay_us) {
  const StepSpan& span = input.spans[static_cast<size_t>(sample.span)];
  result->logprob = -0.5f;
  result->top_count = std::clamp(sample.top_logprobs, 0, std::min(kTopLogprobsMax, description_.vocab_size));
  if (sample.target >= 0) {
    result->token = sample.target;
  } else if (script_.replies.empty()) {
    const uint64_t draw = KeyedRandom(sample.params.seed, sample.position);
    result->token = draw % 97 == 0 ? kScriptEnd : static_cast<int32_t>('a' + draw / 97 % 26);
  } else {
    const ScriptReply& reply = *conversations_[span.request].reply;
    const auto index = static_cast<int64_t>(sample.position) - span.prompt_tokens;
    *delay_us += reply.delay_us;
    result->token = index == reply.fault_at                             ? -1
                    : index < static_cast<int64_t>(reply.tokens.size()) ? reply.tokens[static_cast<size_t>(index)]
                                                                        : kScriptEnd;
  }
  // Biases and bans hold here too, so that clients can try them: a banned token becomes a space.
  for (int32_t a = 0; a < sample.adjustment_count; ++a) {
    const TokenAdjustment& adjustment = input.adjustments[static_cast<size_t>(sample.first_adjustment + a)];
    if (adjustment.token == result->token && adjustment.bias <= kBanBias) result->token = ' ';
  }
  for (int32_t i = 0; i < result->top_count; ++i) {
    result->top_tokens[i] = i == 0 ? std::max(result->token, 0) : (i - 1 < result->token ? i - 1 : i);
    result->top_logprobs[i] = -0.5f - static_cast<float>(i);
  }
}

}  // namespace headrace
