#include "weights/json_scan.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "weights/limits.h"

namespace headrace {
namespace {

using Json = nlohmann::json;

// Follows the depth and reports the strings that lie directly in the top object's weight_map.
class WeightMapSax final : public nlohmann::json_sax<Json> {
 public:
  WeightMapSax(std::string_view file_name, const IndexVisitor& visit) : file_name_(file_name), visit_(visit) {}
  Status Finish(bool parsed) {
    if (parsed && status_ && !found_) {
      return Fail(ErrorCode::kCorruptData, fmt::format("{} has no weight_map", file_name_));
    }
    return std::move(status_);
  }

  bool null() override { return Other(); }
  bool boolean(bool) override { return Other(); }
  bool number_integer(number_integer_t) override { return Other(); }
  bool number_unsigned(number_unsigned_t) override { return Other(); }
  bool number_float(number_float_t, const string_t&) override { return Other(); }
  bool binary(binary_t&) override { return Other(); }
  bool string(string_t& value) override {
    if (!InMap()) return true;
    status_ = visit_(key_, value);
    return status_.has_value();
  }
  bool start_object(size_t) override {
    if (InMap()) return Other();
    if (depth_ == 1 && key_ == "weight_map") {
      if (found_) return Refuse("two weight_maps");
      found_ = in_map_ = true;
    }
    ++depth_;
    return true;
  }
  bool key(string_t& value) override {
    key_ = std::move(value);
    return true;
  }
  bool end_object() override {
    if (--depth_ == 1) in_map_ = false;
    return true;
  }
  bool start_array(size_t) override {
    if (InMap()) return Other();
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return Refuse(fmt::format("no valid JSON at byte {}", position));
  }

 private:
  bool InMap() const { return in_map_ && depth_ == 2; }
  bool Other() { return InMap() ? Refuse("weight_map holds something other than a file name") : true; }
  bool Refuse(std::string_view what) {
    status_ = Fail(ErrorCode::kCorruptData, fmt::format("{}: {}", file_name_, what));
    return false;
  }

  const std::string_view file_name_;
  const IndexVisitor& visit_;
  Status status_;
  std::string key_;
  int depth_ = 0;
  bool in_map_ = false;
  bool found_ = false;
};

}  // namespace

Status CheckJsonShape(std::string_view text, std::string_view file_name, const JsonLimits& limits) {
  int depth = 0;
  bool in_string = false;
  size_t token_begin = 0;
  const auto refuse = [&](std::string_view what, uint64_t most, size_t at) {
    return Fail(ErrorCode::kTooLarge, fmt::format("{}: JSON {} {} at byte {}", file_name, what, most, at));
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (i - token_begin > limits.token_bytes_max) {
      return refuse("has a token of more bytes than", limits.token_bytes_max, token_begin);
    }
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '{' || c == '[') {
      if (++depth > limits.depth_max) return refuse("nests deeper than", static_cast<uint64_t>(limits.depth_max), i);
    } else if (c == '}' || c == ']') {
      --depth;
    } else if (c != '"' && c != ',' && c != ':') {
      continue;
    }
    token_begin = i;
  }
  return {};
}

Status VisitWeightMap(std::string_view text, std::string_view file_name, const IndexVisitor& visit) {
  HR_RETURN_IF_ERROR(CheckJsonShape(text, file_name, {kJsonDepthMax, kJsonTokenBytesMax}));
  WeightMapSax sax(file_name, visit);
  return sax.Finish(Json::sax_parse(text.begin(), text.end(), &sax));
}

Status CheckShardName(std::string_view shard, std::string_view index_name) {
  constexpr size_t kFileNameBytesMax = 255;
  const std::string shown = EscapeForLog(shard, 100);
  const bool plain = !shard.empty() && shard.size() <= kFileNameBytesMax && shard.front() != '.' &&
                     shard.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
  if (!plain) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} names the file \"{}\": only files of the same folder are read, by names of 1 to {} bytes",
                    index_name, shown, kFileNameBytesMax),
        std::string(shown));
  }
  if (!shard.ends_with(".safetensors")) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("{} names the file \"{}\", which is no safetensors file: convert the model to safetensors first, "
                    "with a tool that you trust",
                    index_name, shown),
        std::string(shown));
  }
  return {};
}

}  // namespace headrace
