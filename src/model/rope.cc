#include "model/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/exact_math.h"
#include "model/model_config.h"

namespace headrace {
namespace {

constexpr double kTwoPi = 6.283185307179586;
// Radians a position; no published model turns faster than 1. Times the largest context it is what ExactSinCos takes.
constexpr double kFastestTurn = 64;
static_assert(kFastestTurn * kContextMax <= 1 << 30);

// Wavelengths beyond the original context are stretched, short ones kept, a ramp between (Llama 3.1).
double Llama3Frequency(const RopeConfig& rope, double frequency) {
  const double wavelength = kTwoPi / frequency;
  const double longest_kept = rope.original_context / rope.high_freq_factor,
               shortest_stretched = rope.original_context / rope.low_freq_factor;
  if (wavelength < longest_kept) return frequency;
  if (wavelength > shortest_stretched) return frequency / rope.factor;
  const double smooth =
      (rope.original_context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

// Peng et al., YaRN, 2023: interpolate slow pairs, keep fast ones, ramp between the two correction dimensions.
double YarnFrequency(const RopeConfig& rope, double frequency, int pair) {
  const auto correction = [&](double rotations) {
    return rope.dims * ExactLog(rope.original_context / (rotations * kTwoPi)) / (2 * ExactLog(rope.base));
  };
  const double first = correction(rope.beta_fast), last = correction(rope.beta_slow);
  const double low = std::max(rope.whole_dimensions ? std::floor(first) : first, 0.0);
  const double high = std::min(rope.whole_dimensions ? std::ceil(last) : last, static_cast<double>(rope.dims - 1));
  const double ramp = std::clamp((pair - low) / std::max(high - low, 0.001), 0.0, 1.0);
  return frequency / rope.factor * ramp + frequency * (1 - ramp);
}

}  // namespace

Status SetRopeScaling(RopeConfig& rope, std::string_view type, double factor, double original_context) {
  rope.factor = factor;
  rope.original_context = original_context;
  if (type.empty() || type == "none" || type == "default") {
    rope.scaling = RopeConfig::Scaling::kNone;
  } else if (type == "linear") {
    rope.scaling = RopeConfig::Scaling::kLinear;
  } else if (type == "llama3") {
    rope.scaling = RopeConfig::Scaling::kLlama3;
  } else if (type == "yarn") {
    rope.scaling = RopeConfig::Scaling::kYarn;
  } else if (type == "longrope" || type == "su") {
    rope.scaling = RopeConfig::Scaling::kLongRope;
  } else {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("rope scaling '{}' is not supported; supported are none, linear, llama3, yarn and longrope", type),
        "rope_scaling");
  }
  const bool needs_context = rope.scaling != RopeConfig::Scaling::kNone && rope.scaling != RopeConfig::Scaling::kLinear;
  if (needs_context && original_context < 1) {
    return Fail(ErrorCode::kCorruptData, fmt::format("rope scaling '{}' needs its original context length", type),
                "rope_scaling");
  }
  return {};
}

double YarnMagnitude(double factor, double tenths) {
  return factor <= 1.0 ? 1.0 : 0.1 * tenths * ExactLog(factor) + 1.0;
}

bool TakesLongFactors(const RopeConfig& rope, int64_t context) {
  return rope.scaling == RopeConfig::Scaling::kLongRope && static_cast<double>(context) > rope.original_context;
}

std::vector<double> RopeFrequencies(const RopeConfig& rope, const std::vector<float>& factors, double* magnitude) {
  *magnitude = 1.0;
  if (rope.scaling == RopeConfig::Scaling::kYarn) {
    *magnitude = rope.attention_factor > 0 ? rope.attention_factor : YarnMagnitude(rope.factor);
  }
  if (rope.scaling == RopeConfig::Scaling::kLongRope) {
    *magnitude = rope.attention_factor > 0 ? rope.attention_factor
                 : rope.factor <= 1.0      ? 1.0
                                           : std::sqrt(1 + ExactLog(rope.factor) / ExactLog(rope.original_context));
  }
  std::vector<double> out(static_cast<size_t>(rope.dims / 2));
  for (int i = 0; i < rope.dims / 2; ++i) {
    double frequency = ExactPow(rope.base, -2.0 * i / rope.dims);
    switch (rope.scaling) {
      case RopeConfig::Scaling::kNone:
      case RopeConfig::Scaling::kLongRope:  // the factors below
        break;
      case RopeConfig::Scaling::kLinear:
        frequency /= rope.factor;
        break;
      case RopeConfig::Scaling::kLlama3:
        frequency = Llama3Frequency(rope, frequency);
        break;
      case RopeConfig::Scaling::kYarn:
        frequency = YarnFrequency(rope, frequency, i);
        break;
    }
    if (!factors.empty()) frequency /= static_cast<double>(factors[static_cast<size_t>(i)]);
    out[static_cast<size_t>(i)] = frequency;
  }
  return out;
}

Status CheckFrequencies(const RopeConfig& rope, const std::vector<float>& factors) {
  double magnitude = 0;
  bool good = true;
  for (const double frequency : RopeFrequencies(rope, factors, &magnitude))
    good &= frequency >= 0 && frequency <= kFastestTurn;  // not so for a NaN
  if (good && magnitude > 0 && std::isfinite(magnitude)) return {};
  return Fail(ErrorCode::kCorruptData,
              "the rope settings (base, scaling factors) give frequencies that are no numbers or too high: the model "
              "would answer nonsense; copy, pull or convert it again",
              "rope_scaling");
}

}  // namespace headrace
