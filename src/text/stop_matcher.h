// Finds the first of several stop strings in a stream of bytes (A. Aho and M. Corasick, "Efficient string matching",
// 1975). The match that ends first wins; of those that end together, the longest, which starts earliest. Held back is
// never more than the longest end of the text that begins a stop string.
//
// Thread-safe: immutable; each stream has its own State. Feed allocates nothing.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace headrace {

constexpr size_t kStopStringsMax = 64;
constexpr size_t kStopStringBytesMax = 1024;
constexpr size_t kStopBytesMax = 4096;  // of all stop strings together
// Nodes are numbered in 16 bits.
static_assert(kStopBytesMax + 1 <= 65535);
static_assert(kStopStringBytesMax <= kStopBytesMax);

class StopMatcher {
 public:
  struct State {
    uint64_t text_bytes = 0;  // fed so far; up to the end of the match once there is one
    uint16_t node = 0;
    bool matched = false;
  };
  struct Found {
    bool matched = false;
    int32_t stop = -1;  // index of the stop string
    // Bytes of the whole text that no later match can reach, so that they can be sent; with a match, those before it.
    // Never shrinks.
    uint64_t release_bytes = 0;
  };

  // Matches nothing.
  StopMatcher() = default;
  // kInvalidArgument for an empty stop string, kTooLarge above the maxima; the field is "stop". Equal strings count as
  // the first of them.
  static Result<StopMatcher> Build(std::span<const std::string> stops);

  // The bytes of one more token. After a match the state stays as it is.
  Found Feed(State& state, std::string_view bytes) const;

  bool empty() const { return nodes_.empty(); }

 private:
  struct Node {
    uint16_t depth = 0;  // bytes of stop strings that the text ends with here
    int32_t stop = -1;   // the longest stop string that ends here
    uint16_t stop_bytes = 0;
  };

  void AddString(std::string_view stop, int32_t index);
  void LinkFailures();
  uint16_t& Next(uint16_t node, uint8_t byte) { return next_[node * classes_ + class_of_[byte]]; }
  uint16_t Next(uint16_t node, uint8_t byte) const { return next_[node * classes_ + class_of_[byte]]; }

  std::vector<Node> nodes_;              // 0 is the root
  std::vector<uint16_t> next_;           // nodes x classes, complete: one lookup a byte
  std::array<uint8_t, 256> class_of_{};  // bytes that no stop string holds share class 0
  size_t classes_ = 1;
};

}  // namespace headrace
