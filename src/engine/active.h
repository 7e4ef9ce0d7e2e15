// One sequence inside the engine: the request and what has become of it. Owned by the engine's thread.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "engine/engine.h"
#include "engine/prompt_lookup.h"
#include "kv_cache/block_chain.h"

namespace headrace {

struct Engine::Active {
  std::unique_ptr<EngineRequest> request;
  std::shared_ptr<EngineStream> stream;
  std::vector<int32_t> tokens;           // prompt and generated; capacity for all
  std::optional<BlockChain> chain;       // of tokens; none without a prefix cache
  std::unique_ptr<PromptLookup> lookup;  // none without speculation
  std::shared_ptr<TextIndex> tenant_texts;
  std::array<int32_t, kDraftsMax> drafts{};  // offered for the next step, from the first on
  int32_t sampled = 0;                       // tokens that this step's rows have yielded
  AdjustmentTable adjustments;
  std::vector<int32_t> end_bans;     // tokens banned until min_tokens
  std::unique_ptr<Grammar> grammar;  // where the answer stands in its request's
  std::vector<uint32_t> mask;        // of the next token; empty without a grammar
  StopMatcher::State stop_state{};
  uint64_t text_bytes = 0;  // of the answer so far
  int64_t max_tokens = 0;
  int64_t logits_from = 0;  // prompt positions below this have been reported (prompt_logprobs)
  int32_t slot = -1;
  bool finished = false;
  bool failed = false;  // finished with an error

  int64_t generated() const { return static_cast<int64_t>(tokens.size() - request->prompt.size()); }
};

}  // namespace headrace
