// Makes a ModelFile from open sources: sorts them, parses each header, checks what only the whole can show (parts that
// are missing, names that repeat, tensors that overlap, an index that tells otherwise).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "weights/parsed_header.h"

namespace headrace {

constexpr std::string_view kIndexFileName = "model.safetensors.index.json";
// By ModelFile::TextKind.
constexpr std::string_view kTextFileNames[ModelFile::kTextKinds] = {
    "config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"};

// One model, one thread, one call of Build.
class ModelFileBuilder {
 public:
  Result<std::unique_ptr<ModelFile>> Build(std::vector<std::unique_ptr<ByteSource>> sources);

 private:
  using Sources = std::vector<std::unique_ptr<ByteSource>>;

  Status SortSources(Sources sources);
  Status SniffFormat();
  Status ParseHeaders();
  Status OrderGgufParts();
  Status CheckGgufPart(const ByteSource& source, const ParsedHeader& header, size_t index) const;
  void TakeHeaders();
  Status IndexNames();
  Status CheckNoOverlap() const;
  Status CheckAgainstIndex() const;
  Status ReadTexts();

  std::unique_ptr<ModelFile> model_{new ModelFile()};
  std::unique_ptr<ByteSource> index_;
  std::unique_ptr<ByteSource> texts_[ModelFile::kTextKinds];
  std::vector<ParsedHeader> headers_;  // by source
};

}  // namespace headrace
