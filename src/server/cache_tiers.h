// The prefix cache's tiers below the pool and the secret of block names, from the options of `serve`.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "executor/executor.h"
#include "kv_cache/block_name.h"
#include "kv_tier/second_tier.h"
#include "metrics/registry.h"
#include "server/serve_options.h"

namespace headrace {

// Memory that the tiers take, for the plan; before the model's block size is known, so at most.
uint64_t CacheTierBytes(const ServeOptions& options);

// With a cache folder, the deployment key's file; without, one of this process, so that names mean nothing elsewhere.
Result<DeploymentKey> CacheKey(const ServeOptions& options);
BlockKey BlockNameKey(const DeploymentKey& key);

// Wrong flags are errors. A folder that cannot be used is none: it is said once and counted, and `disk` stays empty.
Result<SecondTier> OpenSecondTier(const ServeOptions& options, const DeploymentKey& key,
                                  const ExecutorDescription& executor, const Clock& clock);

// "cache memory 512 MiB = 23296 tokens, cache disk 10240 MiB = 466048 tokens (1280 there)"; "" without tiers.
std::string CachePlan(const SecondTier& tier);

// `tier` outlives the registry's last scrape.
void WatchTiers(MetricsRegistry& metrics, const SecondTier& tier, uint64_t block_bytes);

}  // namespace headrace
