// The pipeline's backend over the engine of this process. One sequence for each choice; one doorbell for all, so that a
// step that moves many answers wakes the loop once. Loop thread. Stop the engine's thread before this goes: its steps
// ring the bell.
#pragma once

#include <memory>
#include <vector>

#include "engine/engine.h"
#include "gateway/backend.h"
#include "net/event_loop.h"
#include "text/tokenizer.h"

namespace headrace {

class LocalBackend final : public Backend {
 public:
  LocalBackend(EventLoop& loop, Engine& engine, const Tokenizer& tokenizer);
  ~LocalBackend() override;

  Result<std::unique_ptr<BackendCall>> Start(const PreparedRequest& request, BackendSink& sink) override;

 private:
  class Call;
  void DrainAll();

  Engine& engine_;
  const Tokenizer& tokenizer_;
  std::vector<Call*> calls_;  // under way
  std::unique_ptr<Doorbell> bell_;
};

}  // namespace headrace
