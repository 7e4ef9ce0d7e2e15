// Gives an engine what another one was given, by its log, and compares what it decides: each step's plan, who is
// preempted, who expires. Equal, to the row and the block, or it names the first step that is not.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"
#include "trace/decision_log.h"

namespace headrace {

struct DecidedAgain {
  size_t steps = 0, spans = 0, requests = 0, preemptions = 0;
  // The first step, from 0, that was decided in another way, and how; steps.size() and "" when none was.
  size_t first_difference = 0;
  std::string difference;
};

DecidedAgain DecideAgain(const Decisions& log);

}  // namespace headrace
