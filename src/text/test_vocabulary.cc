#include "text/test_vocabulary.h"

#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/file.h"

namespace headrace {
namespace {

using Json = nlohmann::json;

// GGUF metadata, version 3: only what the tokenizer needs.
class GgufMetadata {
 public:
  explicit GgufMetadata(const std::string& path) : in_(path, std::ios::binary) {}

  bool Read() {
    if (Take<uint32_t>() != 0x46554747) return false;
    Take<uint32_t>();  // version
    Take<uint64_t>();  // tensors
    for (uint64_t keys = Take<uint64_t>(); keys > 0 && in_; --keys) {
      const std::string key = TakeString();
      ReadValue(key, Take<uint32_t>());
    }
    return static_cast<bool>(in_);
  }

  std::map<std::string, double> numbers;
  std::map<std::string, std::vector<double>> number_lists;
  std::map<std::string, std::vector<std::string>> strings;  // one element for a single string

 private:
  static constexpr uint32_t kString = 8;
  static constexpr uint32_t kArray = 9;

  template <typename T>
  T Take() {
    T value{};
    in_.read(reinterpret_cast<char*>(&value), sizeof value);
    return value;
  }
  std::string TakeString() {
    std::string text(Take<uint64_t>(), '\0');
    in_.read(text.data(), static_cast<std::streamsize>(text.size()));
    return text;
  }
  double TakeNumber(uint32_t type) {
    switch (type) {
      case 0:
        return Take<uint8_t>();
      case 1:
        return Take<int8_t>();
      case 2:
        return Take<uint16_t>();
      case 3:
        return Take<int16_t>();
      case 4:
        return Take<uint32_t>();
      case 5:
        return Take<int32_t>();
      case 6:
        return Take<float>();
      case 7:
        return Take<uint8_t>();
      case 10:
        return static_cast<double>(Take<uint64_t>());
      case 11:
        return static_cast<double>(Take<int64_t>());
      default:
        return Take<double>();
    }
  }
  void ReadValue(const std::string& key, uint32_t type) {
    if (type == kString) {
      strings[key].push_back(TakeString());
    } else if (type == kArray) {
      const auto element = Take<uint32_t>();
      for (uint64_t count = Take<uint64_t>(); count > 0 && in_; --count) {
        if (element == kString) {
          strings[key].push_back(TakeString());
        } else {
          number_lists[key].push_back(TakeNumber(element));
        }
      }
    } else {
      numbers[key] = TakeNumber(type);
    }
  }

  std::ifstream in_;
};

template <typename T>
std::vector<T> Cast(const std::vector<double>& values) {
  return std::vector<T>(values.begin(), values.end());
}

}  // namespace

std::string TestFile(const std::string& path) {
  auto text = ReadWholeFile(std::string(HEADRACE_SOURCE_DIR) + "/tests/text/" + path, 256ull << 20);
  CHECK(text.has_value());
  return *std::move(text);
}

Vocabulary FixtureVocabulary(const std::string& name) {
  const Json json = Json::parse(TestFile("fixtures/" + name + ".json"));
  Vocabulary v;
  v.model = json["model"];
  v.pre = json["pre"];
  v.tokens = json["tokens"].get<std::vector<std::string>>();
  v.types = json["types"].get<std::vector<int32_t>>();
  v.scores = json["scores"].get<std::vector<float>>();
  v.merges = json["merges"].get<std::vector<std::string>>();
  v.bos = json["bos"];
  v.eos = json["eos"];
  v.unk = json.value("unk", -1);
  v.add_bos = json["add_bos"];
  return v;
}

Vocabulary VocabularyFromJson(const std::string& tokenizer_json, std::string pre) {
  const Json json = Json::parse(tokenizer_json);
  Vocabulary v;
  v.model = "gpt2";
  v.pre = std::move(pre);
  const auto put = [&](size_t id, const std::string& text, int32_t type) {
    if (v.tokens.size() <= id) {
      v.tokens.resize(id + 1);
      v.types.resize(id + 1, 5);
    }
    v.tokens[id] = text;
    v.types[id] = type;
  };
  for (const auto& [text, id] : json["model"]["vocab"].items()) put(id, text, 1);
  for (const Json& added : json["added_tokens"]) put(added["id"], added["content"], added["special"] ? 3 : 4);
  for (const Json& merge : json["model"]["merges"]) {
    v.merges.push_back(merge.is_string() ? merge.get<std::string>()
                                         : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  return v;
}

Result<TestModel> ReadTestModel(const std::string& path) {
  GgufMetadata gguf(path);
  if (!gguf.Read()) return Fail(ErrorCode::kCorruptData, "not a GGUF file");
  const auto id = [&](const std::string& name) {
    const auto found = gguf.numbers.find("tokenizer.ggml." + name + "_token_id");
    return found == gguf.numbers.end() ? -1 : static_cast<int32_t>(found->second);
  };
  const auto text = [&](const std::string& key) {
    return gguf.strings.contains(key) ? gguf.strings[key].front() : std::string();
  };
  TestModel model;
  Vocabulary& v = model.vocabulary;
  v.model = text("tokenizer.ggml.model");
  v.pre = text("tokenizer.ggml.pre");
  v.tokens = std::move(gguf.strings["tokenizer.ggml.tokens"]);
  v.merges = std::move(gguf.strings["tokenizer.ggml.merges"]);
  v.scores = Cast<float>(gguf.number_lists["tokenizer.ggml.scores"]);
  v.types = Cast<int32_t>(gguf.number_lists["tokenizer.ggml.token_type"]);
  v.bos = id("bos");
  v.eos = id("eos");
  v.eot = id("eot");
  v.unk = id("unknown");
  v.pad = id("padding");
  v.add_bos = gguf.numbers["tokenizer.ggml.add_bos_token"] != 0;
  v.add_space_prefix =
      !gguf.numbers.contains("tokenizer.ggml.add_space_prefix") || gguf.numbers["tokenizer.ggml.add_space_prefix"] != 0;
  model.chat_template = text("tokenizer.chat_template");
  return model;
}

}  // namespace headrace
