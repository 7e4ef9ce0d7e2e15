// What the order of two lists of measurements says. Pure; any thread.
#pragma once

#include <span>

namespace headrace {

// How well one threshold tells the two apart: the chance that a value of `larger` is above one of `smaller`, ties
// counting half (the area under the ROC curve; Mann and Whitney, 1947). 0.5: not at all; for an empty list, too.
double AreaUnderCurve(std::span<const double> smaller, std::span<const double> larger);

}  // namespace headrace
