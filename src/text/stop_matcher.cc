#include "text/stop_matcher.h"

#include <utility>

namespace headrace {
namespace {

constexpr uint16_t kNone = 0;  // the root is nobody's child

Status CheckStops(std::span<const std::string> stops) {
  if (stops.size() > kStopStringsMax) {
    return Fail(ErrorCode::kTooLarge, "more than " + std::to_string(kStopStringsMax) + " stop strings", "stop");
  }
  size_t bytes = 0;
  for (const std::string& stop : stops) {
    if (stop.empty()) return Fail(ErrorCode::kInvalidArgument, "a stop string is empty", "stop");
    if (stop.size() > kStopStringBytesMax) {
      return Fail(ErrorCode::kTooLarge, "a stop string has more than " + std::to_string(kStopStringBytesMax) + " bytes",
                  "stop");
    }
    bytes += stop.size();
  }
  if (bytes > kStopBytesMax) {
    return Fail(ErrorCode::kTooLarge, "the stop strings have more than " + std::to_string(kStopBytesMax) + " bytes",
                "stop");
  }
  return {};
}

}  // namespace

Result<StopMatcher> StopMatcher::Build(std::span<const std::string> stops) {
  HR_RETURN_IF_ERROR(CheckStops(stops));
  StopMatcher matcher;
  if (stops.empty()) return matcher;
  std::array<bool, 256> used{};
  for (const std::string& stop : stops) {
    for (char byte : stop) used[static_cast<uint8_t>(byte)] = true;
  }
  // If all 256 bytes are used, class 0 is never looked up and the last class would not fit 8 bits: reuse 0.
  size_t classes = 0;
  for (bool u : used) classes += u;
  uint16_t next_class = classes == 256 ? 0 : 1;
  for (size_t byte = 0; byte < 256; ++byte) {
    if (used[byte]) matcher.class_of_[byte] = static_cast<uint8_t>(next_class++);
  }
  matcher.classes_ = next_class;
  matcher.nodes_.emplace_back();
  matcher.next_.resize(matcher.classes_, kNone);
  for (size_t i = 0; i < stops.size(); ++i) matcher.AddString(stops[i], static_cast<int32_t>(i));
  matcher.LinkFailures();
  return matcher;
}

void StopMatcher::AddString(std::string_view stop, int32_t index) {
  uint16_t node = 0;
  for (char c : stop) {
    const auto byte = static_cast<uint8_t>(c);
    if (Next(node, byte) == kNone) {
      const auto child = static_cast<uint16_t>(nodes_.size());
      nodes_.push_back(Node{static_cast<uint16_t>(nodes_[node].depth + 1), -1, 0});
      next_.resize(next_.size() + classes_, kNone);
      Next(node, byte) = child;
    }
    node = Next(node, byte);
  }
  if (nodes_[node].stop < 0) {
    nodes_[node].stop = index;
    nodes_[node].stop_bytes = static_cast<uint16_t>(stop.size());
  }
}

// Breadth first, so that a node's failure node (the longest proper end that begins a stop string) is complete before
// the node is: missing children become the failure node's, and the stop that ends there ends here too.
void StopMatcher::LinkFailures() {
  std::vector<uint16_t> failure(nodes_.size(), 0);
  std::vector<uint16_t> queue{0};
  for (size_t head = 0; head < queue.size(); ++head) {
    const uint16_t node = queue[head];
    if (node != 0 && nodes_[node].stop < 0) {
      nodes_[node].stop = nodes_[failure[node]].stop;
      nodes_[node].stop_bytes = nodes_[failure[node]].stop_bytes;
    }
    for (size_t c = 0; c < classes_; ++c) {
      uint16_t& child = next_[node * classes_ + c];
      const uint16_t fallback = node == 0 ? uint16_t{0} : next_[failure[node] * classes_ + c];
      if (child == kNone) {
        child = fallback;
      } else {
        failure[child] = fallback;
        queue.push_back(child);
      }
    }
  }
}

StopMatcher::Found StopMatcher::Feed(State& state, std::string_view bytes) const {
  if (nodes_.empty()) {
    state.text_bytes += bytes.size();
    return {false, -1, state.text_bytes};
  }
  if (!state.matched) {
    for (char byte : bytes) {
      state.node = Next(state.node, static_cast<uint8_t>(byte));
      ++state.text_bytes;
      if (nodes_[state.node].stop >= 0) {
        state.matched = true;
        break;
      }
    }
  }
  const Node& node = nodes_[state.node];
  if (state.matched) return {true, node.stop, state.text_bytes - node.stop_bytes};
  return {false, -1, state.text_bytes - node.depth};
}

}  // namespace headrace
