// A few tokens of a row with a value each, ids ascending, and the cut of such a list. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace headrace {

// A prefix of the order "largest value first, lowest id first among equals": what is above `least`, and of those equal
// to it the ids up to `last`.
struct Cut {
  float least = 0;
  int32_t last = INT32_MAX;

  bool Keeps(float value, int32_t id) const { return value > least || (value == least && id <= last); }
};

// What a token weighs in a cut.
enum class Weight : uint8_t { kOne, kValue };

struct TokenList {
  std::vector<float> values;
  std::vector<int32_t> ids;
  int32_t size = 0;

  void Resize(size_t capacity) {
    values.resize(capacity);
    ids.resize(capacity);
  }
};

// Scratch of FindCut.
class ListCutter {
 public:
  explicit ListCutter(size_t capacity) { tokens_.reserve(capacity); }

  // The shortest prefix that weighs at least `need`, all of them if none does. Buckets of the values' own bits narrow
  // it down; at most kSortMax tokens are ever sorted. `ids` null: a token's id is its index. REQUIRES: 0 < count <=
  // capacity, no NaN.
  Cut FindCut(const float* values, const int32_t* ids, int32_t count, Weight weight, double need);

 private:
  struct Token {
    float value;
    int32_t id;
  };
  // Keeps the tokens of the bucket in which `need` is reached and adds what lies above it to `above`.
  void KeepBucket(uint32_t lowest, int shift, Weight weight, double need, double* above);

  std::vector<Token> tokens_;
};

}  // namespace headrace
