#include "trace/recorded_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/random.h"
#include "trace/limits.h"

namespace headrace {
namespace {

constexpr int32_t kSmallBlockTokens = 64;

Status CheckRange(int64_t value, int64_t least, int64_t largest, const char* name) {
  if (value >= least && value <= largest) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{} is {}, but {} to {} is possible", name, value, least, largest), name);
}

}  // namespace

void NameBySmallBlocks(RecordedRequest* request) {
  const int32_t parts = request->block_tokens / kSmallBlockTokens;
  if (parts <= 1) return;
  const auto wanted = static_cast<size_t>((request->prompt_tokens + kSmallBlockTokens - 1) / kSmallBlockTokens);
  std::vector<RecordedBlock> small;
  small.reserve(std::min(wanted, request->blocks.size() * static_cast<size_t>(parts)));
  for (const RecordedBlock& block : request->blocks) {
    for (int32_t part = 0; part < parts && small.size() < wanted; ++part)
      small.push_back(
          {KeyedRandom(block.high + 1, block.low * static_cast<uint64_t>(parts) + static_cast<uint64_t>(part)),
           KeyedRandom(block.high + 2, block.low * static_cast<uint64_t>(parts) + static_cast<uint64_t>(part))});
  }
  request->blocks = std::move(small);
  request->block_tokens = kSmallBlockTokens;
}

Status CheckRecorded(const RecordedRequest& request) {
  HR_RETURN_IF_ERROR(CheckRange(request.arrival_us, 0, kTraceDaysMax * 86'400 * 1'000'000, "arrival"));
  HR_RETURN_IF_ERROR(CheckRange(request.prompt_tokens, 1, kTraceTokensMax, "prompt tokens"));
  HR_RETURN_IF_ERROR(CheckRange(request.output_tokens, 0, kTraceTokensMax, "output tokens"));
  HR_RETURN_IF_ERROR(CheckRange(request.cached_tokens, 0, request.prompt_tokens, "cached tokens"));
  HR_RETURN_IF_ERROR(CheckRange(request.block_tokens, 1, 1 << 20, "tokens of a block"));
  const int64_t blocks_most = (request.prompt_tokens + request.block_tokens - 1) / request.block_tokens;
  return CheckRange(static_cast<int64_t>(request.blocks.size()), 0,
                    std::min(blocks_most, static_cast<int64_t>(kTraceRequestBlocksMax)), "number of block names");
}

}  // namespace headrace
