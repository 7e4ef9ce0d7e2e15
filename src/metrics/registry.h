// Counters, gauges and histograms, and their text for a scraper. A thin face over prometheus-cpp's core, so that its
// types stay in one source. Thread-safe; a histogram takes a lock, so the engine's step never touches one.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace headrace {

using MetricLabels = std::map<std::string, std::string>;

class MetricsRegistry {
 public:
  MetricsRegistry();
  ~MetricsRegistry();

  // Made on first use; names and label sets are bounded by the caller.
  void Add(const std::string& name, const std::string& help, const MetricLabels& labels, double by = 1);
  void Observe(const std::string& name, const std::string& help, const MetricLabels& labels,
               const std::vector<double>& buckets, double value);
  // Read anew at each scrape. `is_counter` chooses the type in the text.
  void Watch(const std::string& name, const std::string& help, const MetricLabels& labels, bool is_counter,
             std::function<double()> read);

  // The exposition text, version 0.0.4.
  std::string Text() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace
