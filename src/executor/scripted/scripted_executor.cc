#include "executor/scripted/scripted_executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "base/random.h"
#include "kv_cache/block_name.h"

namespace headrace {
namespace {

// Replies that are remembered; the oldest go when there are more (a finished request is never asked for again).
constexpr size_t kConversationsMax = 16'384;

}  // namespace

uint32_t ScriptHistory(uint32_t before, int32_t token) {
  return static_cast<uint32_t>(SplitMix64(uint64_t{before} << 32 | static_cast<uint32_t>(token)));
}

int32_t ScriptDraw(uint64_t seed, uint32_t history, uint64_t position, int32_t letters) {
  const uint64_t draw = KeyedRandom(seed ^ history, position);
  return draw % 97 == 0 ? kScriptEnd : static_cast<int32_t>('a' + draw / 97 % static_cast<uint64_t>(letters));
}

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
  description_.block_bytes = sizeof(KvEntry) * kBlockTokens;
  description_.rows_max = script_.batch_tokens_max;
  description_.sequences_max = script_.sequences_max;
  description_.drafts_max = script_.drafts_max;
  description_.logit_rows_max = std::max(script_.sequences_max, 64);
  description_.threads = 0;
  output_.results.reserve(static_cast<size_t>(description_.logit_rows_max));
  kv_.resize(static_cast<size_t>(script_.kv_blocks) * kBlockTokens);
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
    delay_us += span.rows * (span.first_position < span.prompt_tokens ? script_.prefill_us_per_token : script_.row_us);
    WriteKv(input, span);
  }
  output_.results.resize(input.samples.size());
  for (size_t i = 0; i < input.samples.size(); ++i) {
    // A step is delayed once for a sequence, whatever it drafts.
    const bool drafted = i > 0 && input.samples[i - 1].span == input.samples[i].span && input.samples[i - 1].target < 0;
    int64_t ignored = 0;
    Answer(input, input.samples[i], &output_.results[i], drafted ? &ignored : &delay_us);
  }
  sleeper_(delay_us * kNsPerUs);
  return &output_;
}

void ScriptedExecutor::ReadBlock(int32_t block, std::span<std::byte> out) const {
  CHECK_EQ(out.size(), description_.block_bytes);
  std::memcpy(out.data(), &kv_[static_cast<size_t>(block) * kBlockTokens], out.size());
}

void ScriptedExecutor::WriteBlock(int32_t block, std::span<const std::byte> bytes) {
  CHECK_EQ(bytes.size(), description_.block_bytes);
  CHECK_LT(block, description_.kv_blocks);
  std::memcpy(&kv_[static_cast<size_t>(block) * kBlockTokens], bytes.data(), bytes.size());
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

ScriptedExecutor::KvEntry& ScriptedExecutor::KvAt(const StepInput& input, const StepSpan& span, int64_t position) {
  const int64_t block = position / kBlockTokens;
  CHECK_LT(block, span.block_count);
  const int32_t at = input.blocks[static_cast<size_t>(span.first_block + block)];
  return kv_[static_cast<size_t>(int64_t{at} * kBlockTokens + position % kBlockTokens)];
}

void ScriptedExecutor::WriteKv(const StepInput& input, const StepSpan& span) {
  uint32_t history = span.first_position == 0 ? 0 : KvAt(input, span, span.first_position - 1).history;
  for (int32_t row = 0; row < span.rows; ++row) {
    const int32_t token = input.token_ids[static_cast<size_t>(span.first_row + row)];
    history = ScriptHistory(history, token);
    KvAt(input, span, int64_t{span.first_position} + row) = {token, history};
  }
}

// Chosen once, from the prompt as the KV cache holds it.
const ScriptReply& ScriptedExecutor::ReplyTo(const StepInput& input, const StepSpan& span) {
  if (replies_.size() > kConversationsMax) {
    const uint64_t keep_from = span.request > kConversationsMax / 2 ? span.request - kConversationsMax / 2 : 0;
    std::erase_if(replies_, [&](const auto& item) { return item.first < keep_from; });
  }
  const ScriptReply*& reply = replies_[span.request];
  if (reply == nullptr) {
    std::string prompt;
    for (int64_t p = 0; p < span.prompt_tokens; ++p) AppendText(KvAt(input, span, p).token, &prompt);
    reply = Choose(prompt);
  }
  return *reply;
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
    const uint64_t history = KvAt(input, span, static_cast<int64_t>(sample.position) - 1).history;
    result->token = ScriptDraw(sample.params.seed, history, sample.position, script_.letters);
  } else {
    const ScriptReply& reply = ReplyTo(input, span);
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
  const std::span<const uint32_t> allowed = MaskOf(input, sample, description_.vocab_size);
  if (!allowed.empty() && result->token >= 0 && !MaskAllows(allowed, result->token))
    result->token = FirstAllowed(allowed);
  for (int32_t i = 0; i < result->top_count; ++i) {
    result->top_tokens[i] = i == 0 ? std::max(result->token, 0) : (i - 1 < result->token ? i - 1 : i);
    result->top_logprobs[i] = -0.5f - static_cast<float>(i);
  }
}

}  // namespace headrace
