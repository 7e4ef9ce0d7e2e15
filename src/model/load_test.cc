// Goal: a model whose bytes are wrong is refused with the tensor's name, for every family and type: tensors that are
// missing, surplus or of another shape, numbers that are none, a file that cannot be read to its end. Memory that is
// not there is said before any of it is used.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "model/llama.h"
#include "model/seeded_llama.h"

namespace headrace {
namespace {

using testing::HasSubstr;

Result<std::unique_ptr<LlamaModel>> Load(const ModelFile& file, const LlamaModel::LoadOptions& options = {}) {
  HR_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(file));
  ComputePool pool(2);
  return LlamaModel::Load(file, config, ReferenceKernels(), pool, {.context = 128, .rows_max = 8, .logit_rows_max = 8},
                          options);
}

std::string Refusal(const ModelFile& file, const LlamaModel::LoadOptions& options = {}) {
  const auto model = Load(file, options);
  return model ? "loaded" : model.error().message;
}

constexpr const char* kArchitectures[] = {"llama", "qwen2", "qwen3", "gemma3", "phi3", "granite"};

TEST(LoadRefusalTest, EveryTensorOfEveryFamilyIsNeededByItsName) {
  for (const char* architecture : kArchitectures) {
    const auto bytes = BuildSeededLlama({.architecture = architecture, .layers = 1, .width = 64, .tied = false});
    const auto whole = OpenSeededLlama(bytes);
    EXPECT_EQ(Refusal(*whole), "loaded") << architecture;
    for (const TensorInfo& tensor : whole->tensors()) {
      SCOPED_TRACE(std::string(architecture) + " " + tensor.name);
      auto changed = bytes;
      // The name stands once in the header: with another last letter one tensor is missing and one too many.
      char* const name =
          std::search(reinterpret_cast<char*>(changed.data()), reinterpret_cast<char*>(changed.data() + changed.size()),
                      tensor.name.begin(), tensor.name.end());
      name[tensor.name.size() - 1] = 'x';
      const std::string missing = Refusal(*OpenSeededLlama(changed));
      const std::string surplus = tensor.name.substr(0, tensor.name.size() - 1) + "x";
      // Without a head the embedding is the head, and then the surplus one is said.
      EXPECT_THAT(missing,
                  tensor.name == "output.weight" ? HasSubstr(surplus) : HasSubstr(tensor.name + " is missing"));
    }
  }
}

TEST(LoadRefusalTest, AShapeThatIsNotTheConfigurationsNamesBoth) {
  for (const char* architecture : kArchitectures) {
    const auto bytes = BuildSeededLlama({.architecture = architecture, .layers = 1, .width = 64});
    const auto whole = OpenSeededLlama(bytes);
    for (const TensorInfo& tensor : whole->tensors()) {
      SCOPED_TRACE(std::string(architecture) + " " + tensor.name);
      auto changed = bytes;
      const auto at =
          std::search(changed.begin(), changed.end(), reinterpret_cast<const std::byte*>(tensor.name.data()),
                      reinterpret_cast<const std::byte*>(tensor.name.data() + tensor.name.size()));
      // Behind the name: the number of dimensions (4 bytes), then each (8 bytes), columns first. The last one is made
      // one less: rows of a matrix, values of a vector. Less than the file has is no other fault.
      const auto last = at + static_cast<ptrdiff_t>(tensor.name.size() + 4 + (tensor.shape.size() - 1) * 8);
      uint64_t size = 0;
      std::memcpy(&size, &*last, sizeof size);
      ASSERT_EQ(size, static_cast<uint64_t>(tensor.shape.front()));
      --size;
      std::memcpy(&*last, &size, sizeof size);
      std::vector<std::unique_ptr<ByteSource>> sources;
      sources.push_back(SourceFromMemory(changed, "seeded.gguf"));
      const auto file = ModelFile::FromSource(std::move(sources));
      if (!file) {
        EXPECT_THAT(file.error().message, HasSubstr(tensor.name));
        continue;
      }
      EXPECT_THAT(Refusal(**file), HasSubstr(fmt::format("tensor {} has shape [{}", tensor.name, size)));
    }
  }
}

// Writes `value` over the file's bytes of a tensor, from `at` on.
template <typename T>
void Patch(std::vector<std::byte>& bytes, const TensorInfo& tensor, size_t at, T value) {
  std::memcpy(bytes.data() + tensor.file_offset + at, &value, sizeof value);
}

TEST(LoadRefusalTest, ScalesAndValuesThatAreNoNumbersAreNamedInEveryType) {
  struct Case {
    DType type;
    std::vector<size_t> places;  // of scales and minimums in a block
    uint16_t bits;
  };
  constexpr uint16_t kNan = 0x7E00, kInfinity = 0xFC00;
  const Case cases[] = {
      {DType::kQ4_0, {0}, kNan},     {DType::kQ4_1, {0, 2}, kInfinity}, {DType::kQ5_0, {0}, kInfinity},
      {DType::kQ5_1, {0, 2}, kNan},  {DType::kQ8_0, {0}, kNan},         {DType::kQ2_K, {80, 82}, kNan},
      {DType::kQ3_K, {108}, kNan},   {DType::kQ4_K, {0, 2}, kInfinity}, {DType::kQ5_K, {0, 2}, kNan},
      {DType::kQ6_K, {208}, kNan},   {DType::kIQ4_NL, {0}, kInfinity},  {DType::kMXFP4, {0}, 0xFFFF},
      {DType::kF16, {0}, kInfinity}, {DType::kBF16, {0}, 0x7F80},       {DType::kF32, {2}, 0x7FC0},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(Info(c.type).name);
    const auto bytes = BuildSeededLlama({.layers = 1, .width = 256, .types = {c.type}});
    const auto whole = OpenSeededLlama(bytes);
    ASSERT_EQ(Refusal(*whole), "loaded");
    const TensorInfo& tensor = *whole->Find("blk.0.ffn_up.weight");
    ASSERT_EQ(tensor.dtype, c.type);
    // In the first, a middle and the last block.
    const auto block = static_cast<size_t>(Info(c.type).block_bytes);
    for (const size_t b : {size_t{0}, tensor.bytes / block / 2, tensor.bytes / block - 1}) {
      for (const size_t place : c.places) {
        auto changed = bytes;
        Patch(changed, tensor, b * block + place, c.bits);
        const std::string refusal = Refusal(*OpenSeededLlama(changed));
        EXPECT_THAT(refusal, HasSubstr("tensor blk.0.ffn_up.weight has a "));
        EXPECT_THAT(refusal, HasSubstr("not finite"));
      }
    }
  }
  const auto bytes = BuildSeededLlama({.layers = 1});
  auto changed = bytes;
  Patch(changed, *OpenSeededLlama(bytes)->Find("output_norm.weight"), 12, 0x7FC00000u);
  EXPECT_THAT(Refusal(*OpenSeededLlama(changed)),
              HasSubstr("tensor output_norm.weight has a value that is not finite"));
}

// A disk that fails from `bad_from` on.
class FailingSource final : public ByteSource {
 public:
  FailingSource(const std::vector<std::byte>& bytes, uint64_t bad_from)
      : whole_(SourceFromMemory(bytes, "seeded.gguf")), bad_from_(bad_from) {}
  uint64_t size() const override { return whole_->size(); }
  std::string name() const override { return whole_->name(); }
  Status Read(uint64_t offset, std::span<std::byte> out) const override {
    if (offset + out.size() > bad_from_) return Fail(ErrorCode::kIo, "cannot read seeded.gguf: Input/output error");
    return whole_->Read(offset, out);
  }

 private:
  std::unique_ptr<ByteSource> whole_;
  uint64_t bad_from_;
};

TEST(LoadRefusalTest, AReadThatFailsNamesTensorAndRemedy) {
  const auto bytes = BuildSeededLlama({.layers = 2});
  const uint64_t bad_from = OpenSeededLlama(bytes)->Find("blk.1.attn_output.weight")->file_offset + 5;
  std::vector<std::unique_ptr<ByteSource>> sources;
  sources.push_back(std::make_unique<FailingSource>(bytes, bad_from));
  const auto file = ModelFile::FromSource(std::move(sources));
  ASSERT_TRUE(file) << file.error().message;
  const auto model = Load(**file);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::kIo);
  EXPECT_THAT(model.error().message, HasSubstr("tensor blk.1."));
  EXPECT_THAT(model.error().message, HasSubstr("Input/output error; nothing may write to a model while it loads"));
  EXPECT_THAT(model.error().message, HasSubstr("copy or pull it again"));
}

TEST(LoadRefusalTest, AFileThatShrinksWhileItLoadsNamesTensorAndRemedy) {
  const auto bytes = BuildSeededLlama({.layers = 2});
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("headrace-{}.gguf", getpid())).string();
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  const auto file = ModelFile::Open(path);
  ASSERT_TRUE(file) << file.error().message;
  std::filesystem::resize_file(path, bytes.size() / 2);
  const std::string refusal = Refusal(**file);
  std::filesystem::remove(path);
  EXPECT_THAT(refusal, HasSubstr("tensor "));
  EXPECT_THAT(refusal, HasSubstr("became shorter while it was read; nothing may write"));
}

TEST(LoadRefusalTest, MemoryIsAskedForBeforeItIsUsed) {
  const auto bytes = BuildSeededLlama({.layers = 2});
  uint64_t weight_bytes = 0, scratch_bytes = 0;
  const auto refuse = [&](uint64_t weights, uint64_t scratch) -> Status {
    weight_bytes = weights;
    scratch_bytes = scratch;
    return Fail(ErrorCode::kOverloaded, "too little");
  };
  EXPECT_EQ(Refusal(*OpenSeededLlama(bytes), {.admit = refuse, .pack_folder = {}, .content_hash = {}}), "too little");
  const auto model = Load(*OpenSeededLlama(bytes));
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ((*model)->weight_bytes(), weight_bytes);
  EXPECT_EQ((*model)->scratch_bytes(), scratch_bytes);
  EXPECT_GT(scratch_bytes, 0u);
}

TEST(LoadRefusalTest, ATypeWithoutKernelsListsThoseThatHave) {
  auto bytes = BuildSeededLlama({.layers = 1, .types = {DType::kF16}});
  const auto whole = OpenSeededLlama(bytes);
  const std::string name = "blk.0.attn_q.weight";
  const auto at = std::search(bytes.begin(), bytes.end(), reinterpret_cast<const std::byte*>(name.data()),
                              reinterpret_cast<const std::byte*>(name.data() + name.size()));
  const uint32_t i16 = 25;  // GGML_TYPE_I16, as large as F16
  std::memcpy(&*at + name.size() + 4 + 16, &i16, sizeof i16);
  const std::string refusal = Refusal(*OpenSeededLlama(bytes));
  EXPECT_THAT(refusal, HasSubstr("tensor blk.0.attn_q.weight has type I16"));
  EXPECT_THAT(refusal, HasSubstr(ComputableTypeNames()));
}

}  // namespace
}  // namespace headrace
