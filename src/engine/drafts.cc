// The engine's part of speculation: what is offered to the scheduler, the rows that verify it, and what requests leave
// behind for those after them. Commit, in engine.cc, takes a draft only where it equals what the sampler drew, so that
// an answer is the same with drafts and without.
#include <algorithm>

#include "engine/active.h"
#include "engine/engine.h"

namespace headrace {
namespace {

// Adjustments (bans, biases, counts for penalties) of all draft rows of a step: each row has a copy of its own. Half a
// MiB; who has more is drafted less.
constexpr size_t kDraftAdjustmentsMax = 1 << 15;

// Of one answer, for the next ones: 50 us.
constexpr int64_t kAnswerTokensKept = 2048;

}  // namespace

// The prompt is indexed here, on the thread that brings it.
void Engine::PrepareDrafts(Active& active) {
  // A draft row would need the mask of a token that is not committed.
  if (drafts_max_ == 0 || active.max_tokens <= 1 || active.request->grammar != nullptr) return;
  active.tenant_texts = tenant_texts_.Of(active.request->cache_namespace);
  active.lookup = std::make_unique<PromptLookup>(active.tokens, active.max_tokens, active.tenant_texts);
}

void Engine::ReserveDrafts() {
  if (drafts_max_ > 0) input_.adjustments.reserve(input_.adjustments.capacity() + kDraftAdjustmentsMax);
}

void Engine::OfferDrafts() {
  const int32_t wanted = std::clamp(drafts_wanted_.load(std::memory_order_relaxed), 0, drafts_max_);
  const int32_t most = brown_out_.AtLeast(Rung::kNoDrafts) ? 0 : wanted;
  scheduler_.SetDraftsMax(most);
  if (most == 0) return;
  size_t adjustments = 0;
  for (int32_t slot : slots_) {
    Active& active = *by_slot_[static_cast<size_t>(slot)];
    if (active.lookup != nullptr && scheduler_.Decodes(slot)) OfferDraftsOf(active, most, &adjustments);
  }
}

void Engine::OfferDraftsOf(Active& active, int32_t most, size_t* adjustments) {
  // The step yields a token more than it drafts.
  int64_t count = std::min<int64_t>(most, active.max_tokens - active.generated() - 1);
  if (const size_t entries = active.adjustments.entries().size(); entries > 0) {
    const size_t each = entries + kDraftsMax;
    count = std::min(count, static_cast<int64_t>((kDraftAdjustmentsMax - *adjustments) / each));
    *adjustments += static_cast<size_t>(std::max<int64_t>(count, 0)) * each;
  }
  if (count <= 0) return;
  DraftOffer offer;
  const auto wanted = static_cast<size_t>(count);
  offer.count = active.lookup->Propose(acceptance_, std::span(active.drafts).first(wanted),
                                       std::span(offer.survival).first(wanted));
  scheduler_.OfferDrafts(active.slot, offer);
}

// Each draft row draws what follows it, as if it were accepted: at its position, with the adjustments of then.
void Engine::AddDraftSamples(const Active& active, const PlannedSpan& planned, int32_t row, int32_t span) {
  for (int32_t drafted = 1; drafted <= planned.drafts; ++drafted) {
    const auto first = static_cast<int32_t>(input_.adjustments.size());
    AddAdjustmentsAfter(active, std::span(active.drafts).first(static_cast<size_t>(drafted)));
    input_.samples.push_back({row + drafted, span, -1, active.request->top_logprobs,
                              active.tokens.size() + static_cast<size_t>(drafted), first,
                              static_cast<int32_t>(input_.adjustments.size()) - first, active.request->sampling});
  }
}

// What CommitToken would make of the sequence's adjustments, were these its next tokens.
void Engine::AddAdjustmentsAfter(const Active& active, std::span<const int32_t> drafted) {
  const EngineRequest& r = *active.request;
  const std::span<const TokenAdjustment> entries = active.adjustments.entries();
  std::vector<TokenAdjustment>& all = input_.adjustments;
  const size_t first = all.size();
  all.insert(all.end(), entries.begin(), entries.end());
  const auto entry_of = [&](int32_t token) -> TokenAdjustment& {
    if (const int32_t at = active.adjustments.Find(token); at >= 0) return all[first + static_cast<size_t>(at)];
    const auto added = all.begin() + static_cast<int64_t>(first + entries.size());
    const auto found = std::find_if(added, all.end(), [&](const TokenAdjustment& a) { return a.token == token; });
    return found != all.end() ? *found : all.emplace_back(TokenAdjustment{token, 0.0f, 0, false});
  };
  for (const int32_t token : drafted) {
    if (!r.sampling.NeedsHistory()) break;
    TokenAdjustment& entry = entry_of(token);
    entry.seen = true;
    ++entry.output_count;
  }
  const int64_t generated = active.generated() + static_cast<int64_t>(drafted.size());
  if (active.end_bans.empty() || active.generated() >= r.min_tokens || generated < r.min_tokens) return;
  for (const int32_t token : active.end_bans) entry_of(token).bias = 0;
  for (const auto& [token, bias] : r.logit_bias) entry_of(token).bias = bias;
}

void Engine::CountDrafts(const PlannedSpan& span, int32_t accepted) {
  if (span.drafts == 0) return;
  stats_.drafted_tokens.fetch_add(static_cast<uint64_t>(span.drafts), std::memory_order_relaxed);
  stats_.accepted_tokens.fetch_add(static_cast<uint64_t>(accepted), std::memory_order_relaxed);
}

// What a request was answered may be asked for again, in the same words.
void Engine::KeepAnswer(const Active& active) {
  if (active.tenant_texts == nullptr) return;
  const auto kept = std::min<int64_t>(active.generated(), kAnswerTokensKept);
  active.tenant_texts->Break();
  for (const int32_t token : std::span(active.tokens).last(static_cast<size_t>(kept)))
    active.tenant_texts->Append(token);
}

}  // namespace headrace
