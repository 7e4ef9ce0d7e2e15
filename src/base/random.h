// Random numbers that are functions of a key, so that a draw depends on (seed, position) and never on the neighbours.
// SplitMix64 as a counter-based generator: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
#pragma once

#include <cstdint>

namespace headrace {

constexpr uint64_t SplitMix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// The draw of (seed, counter), uniform on 64 bits.
constexpr uint64_t KeyedRandom(uint64_t seed, uint64_t counter) {
  return SplitMix64(SplitMix64(seed) ^ SplitMix64(counter + 0xD1B54A32D192ED03ull));
}

// Uniform in [0, 1), 24 bits, exact in float.
constexpr float KeyedUniform(uint64_t seed, uint64_t counter) {
  return static_cast<float>(KeyedRandom(seed, counter) >> 40) * 0x1p-24f;
}

// A sequence of draws for simulations and tests. One thread.
class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed) {}
  uint64_t Next() { return KeyedRandom(seed_, counter_++); }
  // Uniform in [0, bound). REQUIRES: bound > 0.
  uint64_t Below(uint64_t bound) { return Next() % bound; }
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

 private:
  uint64_t seed_;
  uint64_t counter_ = 0;
};

// 64 bits from the operating system.
uint64_t EntropySeed();

}  // namespace headrace
