// The engine's counters and gauges as metrics: our own names, and vLLM's where boards expect them.
#pragma once

#include "engine/engine.h"
#include "metrics/registry.h"

namespace headrace {

// Borrows the engine, which must outlive every scrape.
void WatchEngine(MetricsRegistry& metrics, const Engine& engine, const std::string& model_name, bool vllm_names);

}  // namespace headrace
