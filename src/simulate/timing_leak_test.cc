// Goal: how fast an answer comes tells nothing about what other tenants have asked, although it tells a tenant about
// its own requests; and a tenant that floods the cache leaves another its hits. On virtual time, 10,000 pairs of
// probes.
#include <gtest/gtest.h>

#include "base/random.h"
#include "simulate/virtual_world.h"
#include "stats/ranks.h"

namespace headrace {
namespace {

constexpr int kPairs = 10'000;
constexpr int64_t kSecretTokens = 1024;

RecordedRequest Asking(uint64_t tenant, int64_t prompt, int64_t output, uint64_t text) {
  RecordedRequest r{.tenant = tenant, .prompt_tokens = prompt, .output_tokens = output};
  if (text != 0)
    for (int64_t b = 0; b * 64 < prompt; ++b) r.blocks.push_back({text, static_cast<uint64_t>(b)});
  return r;
}

enum Tenant : uint64_t { kVictim = 1, kProber = 2, kNeighbour = 3 };

// The area under the curve of probes for what the victim has asked against those for what it has not.
double Leak(bool same_tenant) {
  VirtualWorld world({.kv_tokens = 200'000}, {.waiting_max = 256});
  Random random(11);
  const uint64_t prober = same_tenant ? kVictim : kProber;
  for (uint64_t pair = 1; pair <= kPairs; ++pair) {
    const TimeNs at = static_cast<TimeNs>(pair) * kNsPerSecond;
    const bool asked_first = random.Below(2) == 0;
    const TimeNs first = at + 400 * kNsPerMs, second = at + 700 * kNsPerMs;
    world.Add(at, Asking(kVictim, kSecretTokens, 4, 2 * pair));
    world.Add(asked_first ? first : second, Asking(prober, kSecretTokens, 1, 2 * pair));
    world.Add(asked_first ? second : first, Asking(prober, kSecretTokens, 1, 2 * pair + 1));
    // Others' work, so that times differ by chance, too.
    world.Add(
        at + static_cast<TimeNs>(random.Below(kNsPerSecond)),
        Asking(kNeighbour, 1 + static_cast<int64_t>(random.Below(400)), 1 + static_cast<int64_t>(random.Below(30)), 0));
  }
  world.Run(
      [&](size_t i, EngineRequest& request) { request.cache_namespace = std::to_string(world.requests()[i].tenant); });
  std::vector<double> asked, unasked;
  for (size_t i = 0; i < world.requests().size(); ++i) {
    const RecordedRequest& r = world.requests()[i];
    if (r.tenant == kNeighbour || r.output_tokens != 1) continue;
    (r.blocks[0].high % 2 == 0 ? asked : unasked).push_back(world.TtftMs(i));
  }
  EXPECT_EQ(asked.size(), static_cast<size_t>(kPairs));
  EXPECT_EQ(unasked.size(), static_cast<size_t>(kPairs));
  return AreaUnderCurve(asked, unasked);
}

TEST(TimingLeakTest, OtherTenantsRequestsCannotBeTold) {
  const double area = Leak(false);
  std::printf("area under the curve across tenants: %.4f\n", area);
  EXPECT_NEAR(area, 0.5, 0.02);
}

TEST(TimingLeakTest, ATenantsOwnCan) {
  const double area = Leak(true);
  std::printf("area under the curve within a tenant: %.4f\n", area);
  EXPECT_GE(area, 0.95);
}

// The share of its prompt tokens that a tenant with 20 texts of 2,048 tokens finds in the cache.
double HitRate(double flood_per_second) {
  VirtualWorld world({.kv_tokens = 200'000}, {.waiting_max = 4096});
  Random random(12);
  const TimeNs length = 1200 * kNsPerSecond;
  for (TimeNs at = 0; at < length; at += kNsPerSecond / 2)
    world.Add(at, Asking(kVictim, 2048, 4, 1 + random.Below(20)));
  if (flood_per_second > 0) {
    for (TimeNs at = 0; at < length; at += static_cast<TimeNs>(kNsPerSecond / flood_per_second))
      world.Add(at, Asking(kNeighbour, 4096, 1, 0));
  }
  const std::vector<RequestResult>& results =
      world.Run([&](size_t i, EngineRequest& r) { r.cache_namespace = std::to_string(world.requests()[i].tenant); });
  int64_t prompt = 0, cached = 0;
  for (const RequestResult& r : results) {
    if (r.tenant != kVictim) continue;
    prompt += r.prompt_tokens;
    cached += r.cached_tokens;
  }
  return static_cast<double>(cached) / static_cast<double>(prompt);
}

TEST(TimingLeakTest, AFloodLeavesOthersTheirHits) {
  const double alone = HitRate(0), flooded = HitRate(3);
  std::printf("hit rate alone %.3f, beside a flood %.3f\n", alone, flooded);
  EXPECT_GT(alone, 0.9);
  EXPECT_GE(flooded, 0.9 * alone);
}

}  // namespace
}  // namespace headrace
