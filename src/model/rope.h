// Rotary positions (Su et al., RoFormer, 2021): settings and frequencies. Pure functions.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"

namespace headrace {

struct RopeConfig {
  enum class Pairing { kInterleaved, kHalves };  // (2i, 2i+1) as GGUF stores llama; (i, i + n/2) as Hugging Face does
  enum class Scaling { kNone, kLinear, kLlama3, kYarn, kLongRope };
  Pairing pairing = Pairing::kInterleaved;
  Scaling scaling = Scaling::kNone;
  double base = 10000.0;
  int dims = 0;  // elements of a head that turn, from its first; even
  double factor = 1.0;
  double original_context = 0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  double beta_fast = 32.0, beta_slow = 1.0;              // YaRN
  bool whole_dimensions = true;                          // YaRN: the ramp begins and ends at one
  double attention_factor = 0;                           // YaRN, LongRoPE; 0: their formulas
  // LongRoPE: what divides each frequency in a context up to original_context and beyond; dims / 2 each. GGUF files
  // have them as tensors.
  std::vector<float> short_factors, long_factors;
};

// Errors: kUnsupported for a type that is not known, kCorruptData where the original context is needed and absent.
Status SetRopeScaling(RopeConfig& rope, std::string_view type, double factor, double original_context);

// Whether a model that serves `context` positions takes the long factors. One choice for all sequences, so that an
// answer never depends on how long its sequence becomes.
bool TakesLongFactors(const RopeConfig& rope, int64_t context);

// The rotation per position of each pair, in radians: dims / 2 values. `factors` divides each; may be empty. Also gives
// what YaRN and LongRoPE put on sine and cosine (1 otherwise).
std::vector<double> RopeFrequencies(const RopeConfig& rope, const std::vector<float>& factors, double* magnitude);

// What YaRN puts on sine and cosine, its temperature of attention (Peng et al., 2023, eq. 22), with the factor before
// the logarithm as `tenths` of it.
double YarnMagnitude(double factor, double tenths = 1.0);

// Refuses settings whose frequencies are no numbers, or turn so fast that the last position's angle is not exact
// (kCorruptData): they come from files.
Status CheckFrequencies(const RopeConfig& rope, const std::vector<float>& factors);

}  // namespace headrace
