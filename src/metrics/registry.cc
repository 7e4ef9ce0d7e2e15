#include "metrics/registry.h"

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "base/mutex.h"

namespace headrace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

class MetricsRegistry::Impl {
 public:
  struct Watched {
    std::string name, help;
    MetricLabels labels;
    bool is_counter;
    std::function<double()> read;
  };

  void Add(const std::string& name, const std::string& help, const MetricLabels& labels, double by)
      EXCLUDES_LOCK(mutex_) {
    MutexLock lock(mutex_);
    auto& family = counters_[name];
    if (family == nullptr) family = &prometheus::BuildCounter().Name(name).Help(help).Register(registry_);
    family->Add(labels).Increment(by);
  }
  void Observe(const std::string& name, const std::string& help, const MetricLabels& labels,
               const std::vector<double>& buckets, double value) EXCLUDES_LOCK(mutex_) {
    MutexLock lock(mutex_);
    auto& family = histograms_[name];
    if (family == nullptr) family = &prometheus::BuildHistogram().Name(name).Help(help).Register(registry_);
    family->Add(labels, buckets).Observe(value);
  }
  void Watch(Watched watched) EXCLUDES_LOCK(mutex_) {
    MutexLock lock(mutex_);
    watched_.push_back(std::move(watched));
  }
  std::string Text() EXCLUDES_LOCK(mutex_) {
    MutexLock lock(mutex_);
    std::vector<MetricFamily> families = registry_.Collect();
    for (const Watched& w : watched_) AppendWatched(w, families);
    return prometheus::TextSerializer().Serialize(families);
  }

 private:
  static void AppendWatched(const Watched& w, std::vector<MetricFamily>& families) {
    ClientMetric metric;
    for (const auto& [key, value] : w.labels) metric.label.push_back({key, value});
    (w.is_counter ? metric.counter.value : metric.gauge.value) = w.read();
    for (MetricFamily& family : families) {
      if (family.name != w.name) continue;
      family.metric.push_back(std::move(metric));
      return;
    }
    families.push_back({w.name, w.help, w.is_counter ? MetricType::Counter : MetricType::Gauge, {std::move(metric)}});
  }

  Mutex mutex_;
  prometheus::Registry registry_;
  std::map<std::string, prometheus::Family<prometheus::Counter>*> counters_ GUARDED_BY(mutex_);
  std::map<std::string, prometheus::Family<prometheus::Histogram>*> histograms_ GUARDED_BY(mutex_);
  std::vector<Watched> watched_ GUARDED_BY(mutex_);
};

MetricsRegistry::MetricsRegistry() : impl_(std::make_unique<Impl>()) {}
MetricsRegistry::~MetricsRegistry() = default;

void MetricsRegistry::Add(const std::string& name, const std::string& help, const MetricLabels& labels, double by) {
  impl_->Add(name, help, labels, by);
}
void MetricsRegistry::Observe(const std::string& name, const std::string& help, const MetricLabels& labels,
                              const std::vector<double>& buckets, double value) {
  impl_->Observe(name, help, labels, buckets, value);
}
void MetricsRegistry::Watch(const std::string& name, const std::string& help, const MetricLabels& labels,
                            bool is_counter, std::function<double()> read) {
  impl_->Watch({name, help, labels, is_counter, std::move(read)});
}
std::string MetricsRegistry::Text() const { return impl_->Text(); }

}  // namespace headrace
