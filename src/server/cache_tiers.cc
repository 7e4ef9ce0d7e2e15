#include "server/cache_tiers.h"

#include <fmt/format.h>

#include <atomic>
#include <utility>

#include "base/log.h"

namespace headrace {
namespace {

Result<std::unique_ptr<DiskTier>> OpenDisk(const ServeOptions& options, const DeploymentKey& key,
                                           const ExecutorDescription& executor, const Clock& clock) {
  HR_ASSIGN_OR_RETURN(std::unique_ptr<FolderPort> port, OpenFolder(options.cache_dir));
  auto seal = std::make_unique<BlockSeal>(key, executor.fingerprint, executor.block_bytes);
  HR_ASSIGN_OR_RETURN(auto folder, BlockFolder::Open(std::move(port), std::move(seal), options.cache_disk_bytes));
  if (folder->foreign_blocks() > 0)
    LOG_INFO(
        "the cache folder holds {} MiB of another model, version or key: not used, and removed when room is needed",
        folder->foreign_bytes() >> 20);
  return DiskTier::Make(std::move(folder), clock);
}

void WatchTier(MetricsRegistry& metrics, const char* name, const TierStats& s, uint64_t block_bytes) {
  const MetricLabels labels = {{"tier", name}};
  const auto counter = [&](const char* metric, const char* help, const std::atomic<uint64_t>& value) {
    metrics.Watch(metric, help, labels, true,
                  [&value] { return static_cast<double>(value.load(std::memory_order_relaxed)); });
  };
  counter("headrace_prefix_cache_tier_hit_blocks_total", "KV blocks that were taken from a tier below the pool.",
          s.restored);
  counter("headrace_prefix_cache_tier_spilled_blocks_total", "KV blocks that went to a tier below the pool.",
          s.spilled);
  counter("headrace_prefix_cache_tier_dropped_blocks_total",
          "KV blocks that found no room there: queue full, all pinned, or the tier rests after a failure.", s.dropped);
  counter("headrace_prefix_cache_tier_damaged_blocks_total", "KV blocks that were not what had been written.",
          s.damaged);
  counter("headrace_prefix_cache_tier_failures_total", "Reads and writes that the system refused.", s.failed);
  counter("headrace_prefix_cache_tier_declined_blocks_total",
          "KV blocks that were computed though a tier had them, since that was faster.", s.declined);
  metrics.Watch("headrace_prefix_cache_tier_blocks", "KV blocks in a tier below the pool.", labels, false,
                [&s] { return s.blocks.load(std::memory_order_relaxed); });
  metrics.Watch("headrace_prefix_cache_tier_pinned_blocks", "Of these, what prompt_cache_retention keeps.", labels,
                false, [&s] { return s.pinned.load(std::memory_order_relaxed); });
  metrics.Watch(
      "headrace_prefix_cache_tier_bytes", "Bytes of keys and values in it.", labels, false,
      [&s, block_bytes] { return static_cast<double>(block_bytes) * s.blocks.load(std::memory_order_relaxed); });
}

}  // namespace

uint64_t CacheTierBytes(const ServeOptions& options) {
  const uint64_t buffers = options.cache_dir.empty() ? 0 : DiskTier::kWriteBytesMax + DiskTier::kReadBytesMax;
  return options.cache_memory_bytes + buffers;
}

Result<DeploymentKey> CacheKey(const ServeOptions& options) {
  if (options.cache_dir.empty() && options.cache_key_file.empty()) return DeploymentKey::Draw();
  return DeploymentKey::LoadOrMake(
      options.cache_key_file.empty() ? DeploymentKey::DefaultPath() : options.cache_key_file, options.cache_dir);
}

BlockKey BlockNameKey(const DeploymentKey& key) {
  BlockKey names;
  key.Derive("kv block names", "", std::as_writable_bytes(std::span(&names, 1)));
  return names;
}

Result<SecondTier> OpenSecondTier(const ServeOptions& options, const DeploymentKey& key,
                                  const ExecutorDescription& executor, const Clock& clock) {
  SecondTier tier;
  if (options.cache_dir.empty() && options.cache_memory_bytes == 0) return tier;
  if (!options.prefix_cache)
    return Fail(ErrorCode::kInvalidArgument, "--cache-dir and --cache-memory need --prefix-cache on", "prefix-cache");
  if (options.cache_memory_bytes > 0) {
    HR_ASSIGN_OR_RETURN(tier.memory, MemoryTier::Make(options.cache_memory_bytes, executor.block_bytes));
  }
  if (options.cache_dir.empty()) return tier;
  auto disk = OpenDisk(options, key, executor, clock);
  if (disk) {
    tier.disk = std::move(*disk);
  } else if (disk.error().code == ErrorCode::kInvalidArgument) {
    return std::unexpected(std::move(disk).error());
  } else {
    LOG_WARN("--cache-dir cannot be used ({}): serving without it", disk.error().message);
    tier.disk_failed = true;
  }
  return tier;
}

std::string CachePlan(const SecondTier& tier) {
  std::string plan;
  if (tier.memory) {
    plan += fmt::format("cache memory {} MiB = {} tokens", tier.memory->bytes() >> 20,
                        int64_t{tier.memory->index().places()} * kBlockTokens);
  }
  if (tier.disk) {
    const BlockFolder& folder = tier.disk->folder();
    plan += fmt::format("{}cache disk {} MiB = {} tokens ({} there), {} MiB of buffers", plan.empty() ? "" : ", ",
                        static_cast<uint64_t>(folder.places()) * folder.file_bytes() >> 20,
                        int64_t{folder.places()} * kBlockTokens, std::ssize(folder.found()) * kBlockTokens,
                        tier.disk->buffer_bytes() >> 20);
  }
  return plan;
}

void WatchTiers(MetricsRegistry& metrics, const SecondTier& tier, uint64_t block_bytes) {
  if (tier.memory) WatchTier(metrics, "memory", tier.memory->stats(), block_bytes);
  if (tier.disk) WatchTier(metrics, "disk", tier.disk->stats(), block_bytes);
  if (tier.disk || tier.disk_failed) {
    metrics.Watch("headrace_prefix_cache_tier_unusable", "1: --cache-dir was given and cannot be used.",
                  {{"tier", "disk"}}, false, [failed = tier.disk_failed] { return failed ? 1.0 : 0.0; });
  }
}

}  // namespace headrace
