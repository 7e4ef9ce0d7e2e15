// For tests of laws on virtual time: an engine over a virtual machine, and the requests that it is to be given.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "executor/scripted/script.h"
#include "simulate/driver.h"
#include "simulate/traffic.h"
#include "simulate/virtual_executor.h"

namespace headrace {

class VirtualWorld {
 public:
  // Changes what the engine is handed for request `index`, beside prompt and max_tokens.
  using Dressing = std::function<void(size_t index, EngineRequest& request)>;

  VirtualWorld(const VirtualMachine& machine, const EngineOptions& options) : machine_(machine), options_(options) {}

  // In any order.
  void Add(TimeNs at, RecordedRequest request) {
    request.arrival_us = at / kNsPerUs;
    request.id = requests_.size() + 1;
    requests_.push_back(std::move(request));
  }
  const std::vector<RecordedRequest>& requests() const { return requests_; }

  // What became of them, in order of arrival; requests() is in that order from now on.
  const std::vector<RequestResult>& Run(const Dressing& dress = {}) {
    std::ranges::sort(requests_, {}, [](const RecordedRequest& r) { return std::pair(r.arrival_us, r.id); });
    auto tokenizer = Tokenizer::FromVocabulary(ScriptVocabulary({}));
    EXPECT_TRUE(tokenizer);
    driver_ = std::make_unique<TrafficDriver>(requests_, clock_, [&](size_t index, TimeNs) {
      const RecordedRequest& r = requests_[index];
      auto request = std::make_unique<EngineRequest>();
      PromptTokens(r, INT32_MAX, &request->prompt);
      request->max_tokens = std::max<int64_t>(r.output_tokens, 1);
      request->ignore_eos = true;
      request->sampling.seed = r.id;
      request->place.band = static_cast<Band>(r.band);
      request->place.tenant = r.tenant;
      if (dress) dress(index, *request);
      return request;
    });
    VirtualExecutor executor(machine_, [this](TimeNs time) { driver_->Pass(time); });
    Engine engine(executor, **tokenizer, clock_, options_);
    driver_->Attach(engine, nullptr);
    driver_->Run();
    EXPECT_EQ(driver_->lost(), 0u);
    EXPECT_EQ(engine.stats().kv_blocks_used.load(), 0);
    rows = engine.stats().rows.load();
    virtual_time = clock_.Now() - kVirtualStart;
    return driver_->results();
  }
  double TtftMs(size_t index) const {
    const RequestResult& r = driver_->results()[index];
    return static_cast<double>(r.first_token - r.arrival) / kNsPerMs;
  }

  // After Run.
  uint64_t rows = 0;
  TimeNs virtual_time = 0;

 private:
  const VirtualMachine machine_;
  const EngineOptions options_;
  std::vector<RecordedRequest> requests_;
  VirtualClock clock_;
  std::unique_ptr<TrafficDriver> driver_;
};

}  // namespace headrace
