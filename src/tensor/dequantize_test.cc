// Goal: DequantizeRow reads every computable type to the bit as the Python package `gguf` does; the goldens and the
// script that made them lie in testdata/.
#include "tensor/dequantize.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"

namespace headrace {
namespace {

struct Golden {
  std::string blocks;
  std::vector<float> values;
};

std::map<std::string, Golden> ReadGoldens() {
  const auto file = ReadWholeFile(HEADRACE_SOURCE_DIR "/src/tensor/testdata/dequantize.golden", 1 << 20);
  if (!file) return {};
  std::map<std::string, Golden> goldens;
  for (size_t at = 0; at < file->size();) {
    const std::string name(file->c_str() + at);
    uint32_t blocks = 0;
    std::memcpy(&blocks, file->data() + at + 8, sizeof blocks);
    at += 12;
    for (int i = 0; i < kDTypeCount; ++i) {
      const DTypeInfo& info = Info(static_cast<DType>(i));
      if (info.name != name) continue;
      Golden& golden = goldens[name];
      golden.blocks = file->substr(at, blocks * static_cast<size_t>(info.block_bytes));
      at += golden.blocks.size();
      golden.values.resize(blocks * static_cast<size_t>(info.block_elements));
      std::memcpy(golden.values.data(), file->data() + at, golden.values.size() * sizeof(float));
      at += golden.values.size() * sizeof(float);
    }
  }
  return goldens;
}

TEST(DequantizeTest, EveryTypeWithKernelsMatchesItsGolden) {
  const auto goldens = ReadGoldens();
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto type = static_cast<DType>(i);
    if (!Info(type).computable) continue;
    SCOPED_TRACE(Info(type).name);
    const auto golden = goldens.find(std::string(Info(type).name));
    ASSERT_NE(golden, goldens.end());
    const auto& [blocks, expected] = golden->second;
    ASSERT_FALSE(expected.empty());
    for (size_t misaligned = 0; misaligned < 3; ++misaligned) {
      const std::string shifted = std::string(misaligned, 'x') + blocks;
      std::vector<float> values(expected.size());
      DequantizeRow(type, reinterpret_cast<const std::byte*>(shifted.data()) + misaligned,
                    static_cast<int64_t>(values.size()), values.data());
      for (size_t j = 0; j < values.size(); ++j) ASSERT_EQ(values[j], expected[j]) << "element " << j;
    }
  }
}

TEST(DequantizeTest, AnEmptyRowIsNothing) { DequantizeRow(DType::kF32, nullptr, 0, nullptr); }

}  // namespace
}  // namespace headrace
