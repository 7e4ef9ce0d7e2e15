// Goal: the text that a scraper reads has every series once, with its type, labels and cumulative buckets.
#include "metrics/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(MetricsRegistryTest, TextHoldsEverySeriesOnce) {
  MetricsRegistry registry;
  double depth = 3;
  registry.Add("requests_total", "Requests.", {{"code", "200"}});
  registry.Add("requests_total", "Requests.", {{"code", "200"}}, 2);
  registry.Add("requests_total", "Requests.", {{"code", "400"}});
  registry.Observe("seconds", "Time.", {}, {0.1, 1}, 0.5);
  registry.Observe("seconds", "Time.", {}, {0.1, 1}, 5);
  registry.Watch("depth", "Depth.", {{"queue", "a"}}, false, [&] { return depth; });
  registry.Watch("depth", "Depth.", {{"queue", "b"}}, false, [&] { return depth + 1; });
  depth = 7;
  const std::string text = registry.Text();
  for (const char* line :
       {"requests_total{code=\"200\"} 3\n", "requests_total{code=\"400\"} 1\n", "seconds_bucket{le=\"1\"} 1\n",
        "seconds_bucket{le=\"+Inf\"} 2\n", "seconds_count 2\n", "depth{queue=\"a\"} 7\n", "depth{queue=\"b\"} 8\n",
        "# TYPE requests_total counter\n", "# TYPE depth gauge\n"}) {
    EXPECT_THAT(text, testing::HasSubstr(line));
  }
  EXPECT_EQ(text.find("# TYPE depth"), text.rfind("# TYPE depth"));
}

}  // namespace
}  // namespace headrace
