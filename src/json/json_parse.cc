// Parsing: nlohmann's iterative SAX parser feeds a builder that counts first and keeps finished values on one stack.
#include <fmt/format.h>
#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>
#include <vector>

#include "json/json.h"
#include "json/json_path.h"

namespace headrace {
namespace {

// Up to here comparing every pair of keys is cheaper than sorting them.
constexpr size_t kPairwiseKeysMax = 16;

// The reason in the parser's message, without the text it quotes from the input.
std::string Reason(std::string_view what) {
  constexpr std::string_view kIntro = "syntax error while parsing ";
  if (const size_t at = what.find(kIntro); at != std::string_view::npos) what.remove_prefix(at + kIntro.size());
  return std::string(what.substr(0, std::min(what.find("; last read"), size_t{200})));
}

// Reads through a shared cursor, so that the builder knows where the parser stands when it refuses a value itself.
struct SharedCursor {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char** at;
  const char& operator*() const { return **at; }
  SharedCursor& operator++() {
    ++*at;
    return *this;
  }
  bool operator==(const SharedCursor& other) const { return *at == *other.at; }
};

// The callbacks' names are nlohmann's.
class JsonBuilder {
 public:
  // Borrows both; `cursor` is where the parser reads next.
  JsonBuilder(const JsonLimits& limits, const char* const* cursor)
      : limits_(limits), begin_(*cursor), cursor_(cursor) {}

  bool null() { return Add(nullptr); }
  bool boolean(bool value) { return Add(value); }
  bool number_integer(int64_t value) { return Add(value); }
  bool number_unsigned(uint64_t value) { return Add(value); }
  bool number_float(double value, const std::string&) { return Add(value); }
  bool string(std::string& value) { return Add(std::move(value)); }
  bool binary(Json::binary_t&) { return Refuse("binary values are not JSON"); }
  bool start_object(size_t) { return Open(false); }
  bool start_array(size_t) { return Open(true); }
  bool key(std::string& name);
  bool end_object();
  bool end_array();
  template <typename Exception>
  bool parse_error(size_t, const std::string&, const Exception& exception) {
    // 406: a number that strtod turns into infinity.
    return exception.id == 406 ? Refuse("the number is out of the range of a double")
                               : Refuse("invalid JSON: " + Reason(exception.what()));
  }

  Json TakeRoot() { return std::move(values_.back()); }
  Error TakeError();
  size_t nodes() const { return nodes_; }

 private:
  // An open array or object; its finished members are the tails of values_ and keys_.
  struct Frame {
    bool is_array;
    size_t values_begin;
    size_t keys_begin;
  };

  bool Count() {
    if (nodes_ == limits_.nodes_max) return Refuse(fmt::format("more than {} values", limits_.nodes_max));
    ++nodes_;
    return true;
  }
  template <typename T>
  bool Add(T&& value) {
    if (!Count()) return false;
    values_.emplace_back(std::forward<T>(value));
    return true;
  }
  bool Open(bool is_array) {
    if (frames_.size() >= static_cast<size_t>(limits_.depth_max)) {
      return Refuse(fmt::format("nested deeper than {} levels", limits_.depth_max));
    }
    if (!Count()) return false;
    frames_.push_back({is_array, values_.size(), keys_.size()});
    return true;
  }
  bool Refuse(std::string reason) { return RefuseAt(std::move(reason), Path()); }
  bool RefuseDuplicate(const std::string& name) {
    return RefuseAt("the key appears twice", JoinJsonPath(Path(), name));
  }
  bool RefuseAt(std::string reason, std::string field) {
    reason_ = std::move(reason);
    field_ = std::move(field);
    return false;
  }
  bool KeysAreUnique(size_t begin);
  std::string Path() const;

  const JsonLimits& limits_;
  const char* const begin_;
  const char* const* const cursor_;
  std::vector<Json> values_;
  std::vector<std::string> keys_;
  std::vector<Frame> frames_;
  size_t nodes_ = 0;
  std::string reason_;
  std::string field_;
};

bool JsonBuilder::key(std::string& name) {
  const size_t begin = frames_.back().keys_begin;
  if (keys_.size() - begin < kPairwiseKeysMax) {
    for (size_t i = begin; i < keys_.size(); ++i) {
      if (keys_[i] == name) return RefuseDuplicate(name);
    }
  }
  keys_.push_back(std::move(name));
  return true;
}

// Sorting rather than hashing: no choice of keys makes it quadratic.
bool JsonBuilder::KeysAreUnique(size_t begin) {
  if (keys_.size() - begin <= kPairwiseKeysMax) return true;
  std::vector<const std::string*> sorted;
  sorted.reserve(keys_.size() - begin);
  for (size_t i = begin; i < keys_.size(); ++i) sorted.push_back(&keys_[i]);
  std::ranges::sort(sorted, [](const auto* a, const auto* b) { return *a < *b; });
  const auto twice = std::ranges::adjacent_find(sorted, [](const auto* a, const auto* b) { return *a == *b; });
  return twice == sorted.end() || RefuseDuplicate(**twice);
}

bool JsonBuilder::end_object() {
  const Frame frame = frames_.back();
  if (!KeysAreUnique(frame.keys_begin)) return false;
  frames_.pop_back();
  // An ordered object is a vector whose insert searches for the key; its base class appends. Room is reserved because
  // growing would copy the members (their keys are const).
  Json::object_t object;
  object.reserve(keys_.size() - frame.keys_begin);
  for (size_t i = frame.keys_begin, v = frame.values_begin; i < keys_.size(); ++i, ++v) {
    static_cast<Json::object_t::Container&>(object).emplace_back(std::move(keys_[i]), std::move(values_[v]));
  }
  keys_.resize(frame.keys_begin);
  values_.resize(frame.values_begin);
  values_.emplace_back(std::move(object));
  return true;
}

bool JsonBuilder::end_array() {
  const Frame frame = frames_.back();
  frames_.pop_back();
  const auto begin = values_.begin() + static_cast<std::ptrdiff_t>(frame.values_begin);
  Json::array_t array(std::make_move_iterator(begin), std::make_move_iterator(values_.end()));
  values_.resize(frame.values_begin);
  values_.emplace_back(std::move(array));
  return true;
}

// Where the parser stands: the open containers from the outside in, each with its current member.
std::string JsonBuilder::Path() const {
  std::string path;
  for (size_t i = 0; i < frames_.size(); ++i) {
    const bool last = i + 1 == frames_.size();
    const size_t values = (last ? values_.size() : frames_[i + 1].values_begin) - frames_[i].values_begin;
    const size_t keys_end = last ? keys_.size() : frames_[i + 1].keys_begin;
    if (frames_[i].is_array) {
      path = JoinJsonPath(std::move(path), values);
    } else if (keys_end - frames_[i].keys_begin > values) {
      path = JoinJsonPath(std::move(path), keys_[keys_end - 1]);
    }
  }
  return path;
}

Error JsonBuilder::TakeError() {
  const std::string place = field_.empty() ? "The JSON text" : fmt::format("'{}'", field_);
  std::string message = fmt::format("{}, byte {}: {}.", place, *cursor_ - begin_, reason_);
  return {ErrorCode::kInvalidArgument, std::move(message), std::move(field_), 0};
}

}  // namespace

Result<Json> ParseJson(std::string_view text, const JsonLimits& limits, size_t* nodes_used) {
  if (nodes_used != nullptr) *nodes_used = 0;
  if (text.size() > limits.bytes_max) {
    return Fail(ErrorCode::kTooLarge,
                fmt::format("The JSON text has {} bytes; the limit is {} bytes.", text.size(), limits.bytes_max));
  }
  // The lexer takes NUL for the end of the text and would pass over what follows.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("The JSON text, byte {}: a NUL byte is not JSON.", nul + 1));
  }
  const char* cursor = text.data();
  const char* end = text.data() + text.size();
  JsonBuilder builder(limits, &cursor);
  try {
    const bool ok = Json::sax_parse(SharedCursor{&cursor}, SharedCursor{&end}, &builder);
    if (nodes_used != nullptr) *nodes_used = builder.nodes();
    if (ok) return builder.TakeRoot();
  } catch (const std::exception& exception) {  // none is known; memory aside, this edge must not leak one
    return Fail(ErrorCode::kInternal, fmt::format("The JSON parser failed: {}", exception.what()));
  }
  return Fail(builder.TakeError());
}

}  // namespace headrace
