#include "weights/model_file_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <tuple>

#include "base/log.h"
#include "weights/gguf_reader.h"
#include "weights/json_scan.h"
#include "weights/limits.h"
#include "weights/safetensors_reader.h"
#include "weights/sniff.h"

namespace headrace {
namespace {

std::optional<int64_t> IntOf(const ParsedHeader& header, std::string_view key) {
  const auto found = std::ranges::find(header.metadata, key, &MetaEntry::key);
  return found == header.metadata.end() ? std::nullopt : found->value.AsInt();
}

Result<std::string> ReadText(const ByteSource& source, uint64_t bytes_max) {
  if (source.size() > bytes_max) {
    return Fail(ErrorCode::kTooLarge,
                fmt::format("{} has {} bytes; at most {} are read", source.name(), source.size(), bytes_max));
  }
  std::string text(source.size(), '\0');
  HR_RETURN_IF_ERROR(source.Read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace

Result<std::unique_ptr<ModelFile>> ModelFileBuilder::Build(Sources sources) {
  HR_RETURN_IF_ERROR(SortSources(std::move(sources)));
  HR_RETURN_IF_ERROR(SniffFormat());
  HR_RETURN_IF_ERROR(ParseHeaders());
  if (model_->format_ == ModelFile::Format::kGguf) HR_RETURN_IF_ERROR(OrderGgufParts());
  TakeHeaders();
  HR_RETURN_IF_ERROR(IndexNames());
  HR_RETURN_IF_ERROR(CheckNoOverlap());
  HR_RETURN_IF_ERROR(CheckAgainstIndex());
  HR_RETURN_IF_ERROR(ReadTexts());
  return std::move(model_);
}

Status ModelFileBuilder::SortSources(Sources sources) {
  for (auto& source : sources) {
    const std::string name = source->name();
    const auto* text = std::ranges::find(kTextFileNames, name);
    if (text != std::end(kTextFileNames)) {
      texts_[text - std::begin(kTextFileNames)] = std::move(source);
    } else if (name == kIndexFileName) {
      index_ = std::move(source);
    } else {
      model_->sources_.push_back(std::move(source));
    }
  }
  const size_t files = model_->sources_.size();
  if (files == 0) return Fail(ErrorCode::kNotFound, "no weight file was given");
  if (files > kFilesMax) {
    return Fail(ErrorCode::kTooLarge, fmt::format("a model of {} files; at most {} are read", files, kFilesMax));
  }
  return {};
}

Status ModelFileBuilder::SniffFormat() {
  std::optional<WeightsFormat> shared;
  for (const auto& source : model_->sources_) {
    HR_ASSIGN_OR_RETURN(const WeightsFormat format, SniffWeights(*source));
    if (shared.value_or(format) != format) {
      return Fail(ErrorCode::kCorruptData,
                  fmt::format("{} and {} are of different formats", model_->sources_[0]->name(), source->name()));
    }
    shared = format;
  }
  model_->format_ = shared == WeightsFormat::kGguf ? ModelFile::Format::kGguf : ModelFile::Format::kSafetensors;
  return {};
}

Status ModelFileBuilder::ParseHeaders() {
  uint64_t meta_bytes_left = kMetaBytesMax;
  uint64_t tensors_left = kTensorsMax;
  for (const auto& source : model_->sources_) {
    HR_ASSIGN_OR_RETURN(ParsedHeader header, model_->format_ == ModelFile::Format::kGguf
                                                 ? ReadGgufHeader(*source, meta_bytes_left, tensors_left)
                                                 : ReadSafetensorsHeader(*source, meta_bytes_left, tensors_left));
    meta_bytes_left -= header.meta_bytes;
    tensors_left -= header.tensors.size();
    headers_.push_back(std::move(header));
  }
  return {};
}

// Parts know their number and how many there are: split.no, split.count.
Status ModelFileBuilder::OrderGgufParts() {
  const size_t count = headers_.size();
  Sources sources(count);
  std::vector<ParsedHeader> headers(count);
  for (size_t i = 0; i < count; ++i) {
    std::unique_ptr<ByteSource>& source = model_->sources_[i];
    HR_RETURN_IF_ERROR(CheckGgufPart(*source, headers_[i], i));
    const auto number = static_cast<size_t>(IntOf(headers_[i], "split.no").value_or(0));
    if (sources[number] != nullptr) {
      return Fail(ErrorCode::kCorruptData,
                  fmt::format("{} and {} are the same part", sources[number]->name(), source->name()));
    }
    sources[number] = std::move(source);
    headers[number] = std::move(headers_[i]);
  }
  model_->sources_ = std::move(sources);
  headers_ = std::move(headers);
  const int64_t expected = IntOf(headers_[0], "split.tensors.count").value_or(-1);
  const int64_t found = std::accumulate(
      headers_.begin(), headers_.end(), int64_t{0},
      [](int64_t sum, const ParsedHeader& header) { return sum + static_cast<int64_t>(header.tensors.size()); });
  if (expected >= 0 && expected != found) {
    return Fail(ErrorCode::kCorruptData, fmt::format("{}: the model has {} tensors, but its {} parts hold {}",
                                                     model_->name(), expected, count, found));
  }
  return {};
}

Status ModelFileBuilder::CheckGgufPart(const ByteSource& source, const ParsedHeader& header, size_t index) const {
  const auto given = static_cast<int64_t>(headers_.size());
  // Some writers store 0 for a model that is one file.
  const int64_t count = std::max<int64_t>(IntOf(header, "split.count").value_or(1), 1);
  const int64_t number = IntOf(header, "split.no").value_or(0);
  if (count != given) {
    return Fail(ErrorCode::kCorruptData,
                fmt::format("{} is one of {} parts, but {} were found; keep all parts in one folder "
                            "under their names",
                            source.name(), count, given));
  }
  if (number < 0 || number >= count) {
    return Fail(ErrorCode::kCorruptData, fmt::format("{} calls itself part {} of {}", source.name(), number, count));
  }
  return {};
}

void ModelFileBuilder::TakeHeaders() {
  for (size_t file = 0; file < headers_.size(); ++file) {
    ParsedHeader& header = headers_[file];
    model_->header_bytes_.push_back(header.header_bytes);
    for (TensorInfo& tensor : header.tensors) tensor.file_index = static_cast<uint32_t>(file);
    if (file == 0) {  // the usual case moves, so that nothing is held twice
      model_->tensors_ = std::move(header.tensors);
      model_->metadata_ = std::move(header.metadata);
      continue;
    }
    std::ranges::move(header.tensors, std::back_inserter(model_->tensors_));
    header = ParsedHeader{};  // a part's own metadata are its number and little else
  }
}

Status ModelFileBuilder::IndexNames() {
  const std::vector<TensorInfo>& tensors = model_->tensors_;
  std::vector<uint32_t>& by_name = model_->tensors_by_name_;
  by_name.resize(tensors.size());
  std::iota(by_name.begin(), by_name.end(), 0u);
  std::ranges::sort(by_name, [&](uint32_t a, uint32_t b) { return tensors[a].name < tensors[b].name; });
  const auto twin =
      std::ranges::adjacent_find(by_name, [&](uint32_t a, uint32_t b) { return tensors[a].name == tensors[b].name; });
  if (twin == by_name.end()) return {};
  const std::string name = EscapeForLog(tensors[*twin].name);
  return Fail(ErrorCode::kCorruptData, fmt::format("{}: tensor {} appears twice", model_->name(), name), name);
}

Status ModelFileBuilder::CheckNoOverlap() const {
  const std::vector<TensorInfo>& tensors = model_->tensors_;
  std::vector<uint32_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::sort(order, {}, [&](uint32_t i) {
    return std::tuple(tensors[i].file_index, tensors[i].file_offset, tensors[i].bytes);
  });
  const auto overlaps = [&](uint32_t a, uint32_t b) {
    return tensors[a].file_index == tensors[b].file_index &&
           tensors[b].file_offset - tensors[a].file_offset < tensors[a].bytes;
  };
  const auto found = std::ranges::adjacent_find(order, overlaps);
  if (found == order.end()) return {};
  const TensorInfo& first = tensors[*found];
  const TensorInfo& second = tensors[*std::next(found)];
  return Fail(ErrorCode::kCorruptData,
              fmt::format("{}: tensors {} and {} overlap at byte {}", model_->sources_[first.file_index]->name(),
                          EscapeForLog(first.name), EscapeForLog(second.name), second.file_offset),
              EscapeForLog(second.name));
}

Status ModelFileBuilder::CheckAgainstIndex() const {
  if (index_ == nullptr) return {};
  if (model_->format_ != ModelFile::Format::kSafetensors) {
    return Fail(ErrorCode::kCorruptData,
                fmt::format("{} belongs to safetensors files, but {} is none", index_->name(), model_->name()));
  }
  HR_ASSIGN_OR_RETURN(const std::string text, ReadText(*index_, kIndexBytesMax));
  std::vector<bool> seen(model_->tensors_.size());
  size_t count = 0;
  const auto visit = [&](const std::string& name, const std::string& file) -> Status {
    const std::string shown = EscapeForLog(name);
    HR_RETURN_IF_ERROR(CheckShardName(file, index_->name()));
    const TensorInfo* tensor = model_->Find(name);
    if (tensor == nullptr || model_->sources_[tensor->file_index]->name() != file) {
      return Fail(ErrorCode::kCorruptData,
                  fmt::format("{}: tensor {} is not in {}; is the download complete?", index_->name(), shown,
                              EscapeForLog(file, 100)),
                  shown);
    }
    auto again = seen[static_cast<size_t>(tensor - model_->tensors_.data())];
    if (again) {
      return Fail(ErrorCode::kCorruptData, fmt::format("{}: tensor {} appears twice", index_->name(), shown), shown);
    }
    again = true;
    ++count;
    return {};
  };
  HR_RETURN_IF_ERROR(VisitWeightMap(text, index_->name(), visit));
  if (count == seen.size()) return {};
  const auto missing = std::ranges::find(seen, false) - seen.begin();
  const std::string name = EscapeForLog(model_->tensors_[static_cast<size_t>(missing)].name);
  return Fail(ErrorCode::kCorruptData,
              fmt::format("{}: tensor {} is in a file, but not in the index", index_->name(), name), name);
}

Status ModelFileBuilder::ReadTexts() {
  for (size_t kind = 0; kind < ModelFile::kTextKinds; ++kind) {
    if (texts_[kind] == nullptr) continue;
    const bool tokenizer = kind == static_cast<size_t>(ModelFile::TextKind::kTokenizer);
    HR_ASSIGN_OR_RETURN(model_->texts_[kind],
                        ReadText(*texts_[kind], tokenizer ? kTokenizerTextBytesMax : kConfigTextBytesMax));
    if (kind == static_cast<size_t>(ModelFile::TextKind::kChatTemplate)) continue;
    HR_RETURN_IF_ERROR(
        CheckJsonShape(model_->texts_[kind], kTextFileNames[kind], {kJsonDepthMax, kTokenizerTextBytesMax}));
  }
  return {};
}

}  // namespace headrace
