// Goal: drafts change nothing but the number of steps: tokens, log-probabilities, released bytes, finish reasons and
// cached tokens of every request are those without them, under penalties, bans, stops, limits, faults, preemption and
// cancels. The executor draws from what its KV cache holds and from the
// adjustments of the row, so that a wrong row or a wrong table is another answer.
#include <gtest/gtest.h>

#include <bit>
#include <map>

#include "base/random.h"
#include "engine/engine.h"
#include "executor/scripted/script.h"

namespace headrace {
namespace {

// Says what a text of few words says: mostly a function of the last two tokens, now and then another.
class WordsExecutor final : public Executor {
 public:
  WordsExecutor(int32_t kv_blocks, int32_t rows_max, VirtualClock& clock) : clock_(clock) {
    description_ = {.model = "words",
                    .vocab_size = 300,
                    .context = 400,
                    .kv_blocks = kv_blocks,
                    .rows_max = rows_max,
                    .logit_rows_max = 24,
                    .sequences_max = 8,
                    .drafts_max = 15};
    kv_.resize(static_cast<size_t>(kv_blocks) * kBlockTokens, -1);
  }
  const ExecutorDescription& Describe() const override { return description_; }
  Status Submit(const StepInput& input) override {
    input_ = &input;
    return {};
  }
  Result<const StepOutput*> Wait() override {
    EXPECT_LE(input_->samples.size(), 24u);
    EXPECT_LE(input_->token_ids.size(), static_cast<size_t>(description_.rows_max));
    for (const StepSpan& span : input_->spans) {
      for (int32_t r = 0; r < span.rows; ++r)
        KvAt(span, span.first_position + r) = input_->token_ids[static_cast<size_t>(span.first_row + r)];
    }
    output_.results.resize(input_->samples.size());
    for (size_t i = 0; i < input_->samples.size(); ++i) Draw(input_->samples[i], &output_.results[i]);
    clock_.Advance(kNsPerMs + static_cast<TimeNs>(input_->token_ids.size()) * 20 * kNsPerUs);
    return &output_;
  }
  // It has no KV cache.
  void ReadBlock(int32_t, std::span<std::byte>) const override {}
  void WriteBlock(int32_t, std::span<const std::byte>) override {}

 private:
  int32_t& KvAt(const StepSpan& span, int64_t position) {
    const int32_t block = input_->blocks[static_cast<size_t>(span.first_block + position / kBlockTokens)];
    return kv_[static_cast<size_t>(block * kBlockTokens + position % kBlockTokens)];
  }
  void Draw(const StepSample& sample, SampleResult* result) {
    const StepSpan& span = input_->spans[static_cast<size_t>(sample.span)];
    const int64_t row = span.first_position + (sample.row - span.first_row);
    const auto last = static_cast<uint64_t>(KvAt(span, row)),
               before = static_cast<uint64_t>(row > 0 ? KvAt(span, row - 1) : 0);
    uint64_t adjusted = 0;  // whatever order they are in
    std::map<int32_t, const TokenAdjustment*> by_token;
    for (int32_t a = 0; a < sample.adjustment_count; ++a) {
      const TokenAdjustment& t = input_->adjustments[static_cast<size_t>(sample.first_adjustment + a)];
      EXPECT_TRUE(by_token.emplace(t.token, &t).second) << "a token has two adjustments";
      if (t.bias != 0 || t.output_count != 0 || t.seen)
        adjusted += SplitMix64(static_cast<uint64_t>(t.token) * 1000 + static_cast<uint64_t>(t.output_count) * 2 +
                               (t.seen ? 1 : 0) + uint64_t{std::bit_cast<uint32_t>(t.bias)} * 7);
    }
    *result = {};
    result->logprob = static_cast<float>((SplitMix64(adjusted) + before + last + sample.position) % 10'007);
    result->top_count = std::max(sample.top_logprobs, 0);
    for (int32_t i = 0; i < result->top_count; ++i) {
      result->top_tokens[i] = i;
      result->top_logprobs[i] = static_cast<float>(i) + result->logprob;
    }
    if (sample.target >= 0) {
      result->token = sample.target;
      return;
    }
    uint64_t draw = KeyedRandom(sample.params.seed, sample.position);
    uint64_t at = draw % 8 != 0 ? SplitMix64(before << 32 | last) : draw / 8;
    if (sample.params.NeedsHistory() && draw % 5 == 0) at += adjusted;
    // An end token now and then, a byte of a small alphabet else; banned ones give way to the next.
    int32_t token = at % 61 == 0 ? kScriptEnd : static_cast<int32_t>('a' + at % 5);
    while (by_token.contains(token) && by_token[token]->bias <= kBanBias) token = 'a' + (token + 1) % 5;
    result->token = sample.params.seed % 17 == 3 && draw % 97 == 0 ? -1 : token;
  }

  VirtualClock& clock_;
  ExecutorDescription description_;
  std::vector<int32_t> kv_;
  const StepInput* input_ = nullptr;
  StepOutput output_;
};

struct Case {
  EngineRequest request;
  int arrives;    // at this step
  int cancelled;  // so many steps later; < 0: not
};

std::vector<Case> RandomCases(uint64_t seed) {
  Random random(seed);
  std::vector<Case> cases(12);
  for (Case& c : cases) {
    EngineRequest& r = c.request;
    const uint64_t length = 1 + random.Below(120);
    for (uint64_t i = 0; i < length; ++i) r.prompt.push_back(static_cast<int32_t>('a' + random.Below(5)));
    r.max_tokens = static_cast<int64_t>(random.Below(150));
    r.sampling.seed = random.Next();
    if (random.Below(2) == 0) r.sampling.frequency_penalty = 0.5f;
    if (random.Below(3) == 0) r.sampling.repetition_penalty = 1.2f;
    if (random.Below(3) == 0) r.min_tokens = static_cast<int64_t>(random.Below(60));
    if (random.Below(3) == 0) r.logit_bias = {{'b', 2.0f}, {'c', kBanBias}};
    if (random.Below(4) == 0) r.logit_bias = {{kScriptEnd, -3.0f}};
    if (random.Below(3) == 0) r.stops = *StopMatcher::Build(std::vector<std::string>{"aeda", "bcb"});
    if (random.Below(5) == 0) r.stop_token_ids = {static_cast<int32_t>('a' + random.Below(5)), 7};
    r.include_stop = random.Below(2) == 0;
    r.ignore_eos = random.Below(2) == 0;
    if (random.Below(3) == 0) r.top_logprobs = static_cast<int>(random.Below(4));
    r.prompt_logprobs = r.top_logprobs >= 0 && random.Below(4) == 0;
    r.cache_namespace = random.Below(3) == 0 ? "a" : "b";
    r.place.band = static_cast<Band>(random.Below(kBands));
    c.arrives = static_cast<int>(random.Below(60));
    c.cancelled = random.Below(6) == 0 ? static_cast<int>(random.Below(30)) : -1;
  }
  // `n`: candidates of one prompt.
  for (size_t i = 1; i < 3; ++i) {
    cases[i].request = cases[0].request;
    cases[i].request.sampling.seed += i;
  }
  return cases;
}

struct Outcome {
  std::vector<int32_t> tokens;
  std::vector<uint32_t> released;
  std::vector<float> logprobs;
  EndReason finish = EndReason::kNone;
  bool operator==(const Outcome&) const = default;
};

struct Totals {
  uint64_t drafted = 0, accepted = 0, steps = 0, preemptions = 0;
};

// How much is drafted: not at all, as the planner likes, or another limit at each step.
enum class Drafting { kOff, kOn, kChanging };

std::vector<Outcome> RunCases(const std::vector<Case>& cases, Drafting drafting, int32_t kv_blocks, Totals* totals) {
  VirtualClock clock;
  clock.Set(1);
  WordsExecutor executor(kv_blocks, 64, clock);
  auto tokenizer = *Tokenizer::FromVocabulary(ScriptVocabulary(Script{}));
  Engine engine(executor, *tokenizer, clock,
                {.waiting_max = 32,
                 .check_integrity = true,
                 .room_ahead = false,  // so that there are preemptions
                 .drafts_max = drafting == Drafting::kOff ? 0 : 15});
  std::vector<std::shared_ptr<EngineStream>> streams(cases.size());
  Random random(99);
  for (int step = 0; step < 100'000; ++step) {
    bool due = false;
    for (size_t i = 0; i < cases.size(); ++i) {
      due = due || step <= cases[i].arrives;
      if (step == cases[i].arrives)
        streams[i] = *engine.Submit(std::make_unique<EngineRequest>(cases[i].request), nullptr);
      if (cases[i].cancelled >= 0 && step == cases[i].arrives + cases[i].cancelled) streams[i]->Cancel();
    }
    if (drafting == Drafting::kChanging) engine.SetDraftsMax(static_cast<int32_t>(random.Below(16)));
    if (engine.Step(clock.Now()) == kNever && !due) break;
  }
  EXPECT_EQ(engine.inside(), 0);
  EXPECT_EQ(engine.stats().kv_blocks_used.load(), 0);
  totals->drafted += engine.stats().drafted_tokens.load();
  totals->accepted += engine.stats().accepted_tokens.load();
  totals->steps += engine.stats().steps.load();
  totals->preemptions += engine.stats().preemptions.load();
  std::vector<Outcome> outcomes(cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    for (TokenEvent e; streams[i]->Pop(e); outcomes[i].finish = e.finish) {
      EXPECT_EQ(outcomes[i].finish, EndReason::kNone);
      outcomes[i].tokens.push_back(e.token);
      outcomes[i].released.push_back(e.released_bytes);
    }
    for (SampleResult r; streams[i]->PopLogprobs(r);) {
      outcomes[i].logprobs.push_back(r.logprob);
      outcomes[i].logprobs.push_back(static_cast<float>(r.token));
      outcomes[i].logprobs.insert(outcomes[i].logprobs.end(), r.top_logprobs, r.top_logprobs + r.top_count);
    }
  }
  return outcomes;
}

template <typename T>
bool IsStartOf(const std::vector<T>& start, const std::vector<T>& whole) {
  return start.size() <= whole.size() && std::equal(start.begin(), start.end(), whole.begin());
}

TEST(SpeculationTest, AnswersAreTheSameWithDraftsAndWithout) {
  Totals off, on;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const std::vector<Case> cases = RandomCases(seed);
    const int32_t kv_blocks = seed % 3 == 0 ? 8 : 60;  // 8: preempted on the way
    const auto plain = RunCases(cases, Drafting::kOff, kv_blocks, &off);
    for (const Drafting drafting : {Drafting::kOn, Drafting::kChanging}) {
      const auto drafted = RunCases(cases, drafting, kv_blocks, &on);
      for (size_t i = 0; i < cases.size(); ++i) {
        if (cases[i].cancelled < 0) {
          ASSERT_EQ(drafted[i].tokens, plain[i].tokens) << "seed " << seed << " request " << i;
          ASSERT_EQ(drafted[i], plain[i]) << "seed " << seed << " request " << i;
          continue;
        }
        const bool longer = drafted[i].tokens.size() > plain[i].tokens.size();
        const Outcome &more = longer ? drafted[i] : plain[i], &less = longer ? plain[i] : drafted[i];
        ASSERT_TRUE(IsStartOf(less.tokens, more.tokens)) << "seed " << seed << " request " << i;
        ASSERT_TRUE(IsStartOf(less.logprobs, more.logprobs)) << "seed " << seed << " request " << i;
      }
    }
  }
  EXPECT_EQ(off.drafted, 0u);
  EXPECT_GT(off.preemptions, 100u);
  EXPECT_GT(on.preemptions, 100u);
  EXPECT_GT(on.accepted, 10'000u);
  EXPECT_GT(on.drafted, on.accepted + 2000) << "rejections are meant to be tried, too";
  EXPECT_LT(on.steps, 2 * off.steps);
}

TEST(SpeculationTest, SwitchedOffItDraftsNothing) {
  VirtualClock clock;
  clock.Set(1);
  WordsExecutor executor(60, 64, clock);
  auto tokenizer = *Tokenizer::FromVocabulary(ScriptVocabulary(Script{}));
  Engine engine(executor, *tokenizer, clock, {.waiting_max = 4, .drafts_max = 4});
  const auto ask = [&](std::string_view prompt) {
    auto r = std::make_unique<EngineRequest>();
    r->prompt.assign(prompt.begin(), prompt.end());
    r->max_tokens = 200;
    r->ignore_eos = true;
    auto stream = *engine.Submit(std::move(r), nullptr);
    const uint64_t before = engine.stats().drafted_tokens.load();
    while (engine.Step(clock.Now()) != kNever) {
    }
    return engine.stats().drafted_tokens.load() - before;
  };
  EXPECT_GT(ask("abcabcabc"), 0u);
  engine.SetDraftsMax(0);
  EXPECT_EQ(ask("abcabcabc"), 0u);
  engine.SetDraftsMax(100);  // no more than the engine was made for
  EXPECT_GT(ask("abcabcabc"), 0u);
}

}  // namespace
}  // namespace headrace
