// Goal: no bytes crash the GGUF reader or make it take memory or time (O-33, O-34): each lie is refused by name, every
// cut and a hundred thousand bit flips of a valid file either load or fail cleanly, and the largest header that the
// maxima admit stays under a second and 64 MiB.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <chrono>
#include <fstream>

#include "base/cpu.h"
#include "base/random.h"
#include "weights/limits.h"
#include "weights/test_files.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kF32 = 0;
constexpr uint32_t kU32Value = 4, kStringValue = 8, kArrayValue = 9, kU64Value = 10;

Raw OneTensor(const std::vector<uint64_t>& lengths, uint32_t type = kF32, uint64_t offset = 0) {
  return Raw().Gguf(1, 0).Tensor("t", lengths, type, offset).Pad().Zeros(64);
}
Raw OneKey(uint32_t type) { return Raw().Gguf(0, 1).String("k").U32(type); }
Raw Alignment(uint32_t value) { return Raw().Gguf(0, 1).String("general.alignment").U32(kU32Value).U32(value).Pad(); }

struct Lie {
  Bytes bytes;
  ErrorCode code;
  std::string_view message;
};

std::vector<Lie> Lies() {
  constexpr auto kCorrupt = ErrorCode::kCorruptData;
  constexpr auto kLarge = ErrorCode::kTooLarge;
  constexpr auto kUnsupported = ErrorCode::kUnsupported;
  return {
      {Raw().Gguf(0, 0, 1).bytes(), kUnsupported, "GGUF version 1; versions 2 and 3"},
      {Raw().Gguf(0, 0, 99).bytes(), kUnsupported, "GGUF version 99"},
      {Raw().Gguf(0, 0, 0x03000000).bytes(), kUnsupported, "big-endian"},
      {Raw().Gguf(1ull << 40, 0).Zeros(64).bytes(), kLarge, "1099511627776 tensors; at most 65536"},
      {Raw().Gguf(UINT64_MAX, 0).Zeros(64).bytes(), kLarge, "at most 65536"},
      {Raw().Gguf(0, UINT64_MAX).Zeros(64).bytes(), kLarge, "at most 4096"},
      {Raw().Gguf(65'536, 0).Zeros(64).bytes(), kCorrupt, "need at least 2162712 bytes, but the file has only 88"},
      {OneTensor({(1ull << 63) - 1, 2}).bytes(), kCorrupt, "more than 2^63 bytes"},
      {OneTensor({(1ull << 42) + 1, 1ull << 22}).bytes(), kCorrupt, "more than 2^63 bytes"},
      {OneTensor({1ull << 32, 1ull << 32, 1ull << 32, 1ull << 32}).bytes(), kCorrupt, "more than 2^63 bytes"},
      {OneTensor({UINT64_MAX}).bytes(), kCorrupt, "a dimension of 18446744073709551615"},
      {OneTensor({0}).bytes(), kCorrupt, "a dimension of 0"},
      {OneTensor({}).bytes(), kCorrupt, "0 dimensions"},
      {OneTensor(std::vector<uint64_t>(9, 1)).bytes(), kCorrupt, "t has 9 dimensions; 1 to 4"},
      {Raw().Gguf(1, 0).String("t").U32(UINT32_MAX).Zeros(64).bytes(), kCorrupt, "4294967295 dimensions"},
      {OneTensor({8}, 4).bytes(), kUnsupported, "t has the unknown type number 4; computable types are F32"},
      {OneTensor({8}, UINT32_MAX).bytes(), kUnsupported, "unknown type number 4294967295"},
      {OneTensor({33}, 2).bytes(), kCorrupt, "not a whole number of Q4_0 blocks"},
      {OneTensor({8}, kF32, UINT64_MAX - 31).bytes(), kCorrupt, "begins past 2^63"},
      {OneTensor({8}, kF32, (1ull << 63) - 32).bytes(), kCorrupt, "past 2^63"},
      {OneTensor({8}, kF32, 1ull << 40).bytes(), kCorrupt, "t needs bytes up to"},
      {OneTensor({8}, kF32, 4).bytes(), kCorrupt, "no multiple of the alignment 32"},
      {OneTensor({17}).bytes(), kCorrupt, "t needs bytes up to 132, but the file has only 128"},
      {Raw().Gguf(2, 0).Tensor("a", {16}, kF32, 0).Tensor("b", {8}, kF32, 32).Pad().Zeros(64).bytes(), kCorrupt,
       "tensors a and b overlap at byte"},
      {Raw().Gguf(2, 0).Tensor("a", {8}, kF32, 0).Tensor("a", {8}, kF32, 32).Pad().Zeros(64).bytes(), kCorrupt,
       "tensor a appears twice"},
      {Raw().Gguf(1, 0).String("").Zeros(64).bytes(), kCorrupt, "the name has 0 bytes"},
      {Raw().Gguf(1, 0).U64(UINT64_MAX).Zeros(64).bytes(), kCorrupt, "the name has 18446744073709551615 bytes"},
      {Alignment(0).bytes(), kCorrupt, "power of two"},
      {Alignment(3).bytes(), kCorrupt, "power of two"},
      {Alignment(1u << 21).bytes(), kCorrupt, "power of two up to 1048576"},
      {Alignment(1u << 31).bytes(), kCorrupt, "power of two"},
      {Raw().Gguf(0, 1).String("general.alignment").U32(kStringValue).String("32").bytes(), kCorrupt, "power of two"},
      {Raw().Gguf(0, 1).U64(UINT64_MAX).Zeros(64).bytes(), kLarge, "the key has 18446744073709551615 bytes"},
      {Raw().Gguf(0, 1).U64(UINT64_MAX - 7).Zeros(64).bytes(), kLarge, "the key has"},
      {Raw().Gguf(0, 1).String("").U32(kU32Value).U32(1).bytes(), kCorrupt, "the key is empty"},
      {OneKey(kStringValue).U64(UINT64_MAX).Zeros(64).bytes(), kLarge, "at most 16777216 are read (key k)"},
      {OneKey(kStringValue).U64(1000).Zeros(64).bytes(), kCorrupt,
       "needs 1000 bytes from byte 45, but the file has only 109"},
      {OneKey(7).U8(2).bytes(), kCorrupt, "a boolean of 2"},
      {OneKey(13).Zeros(64).bytes(), kUnsupported, "unknown metadata type 13 (key k)"},
      {OneKey(UINT32_MAX).Zeros(64).bytes(), kUnsupported, "unknown metadata type"},
      {OneKey(kArrayValue).U32(kArrayValue).U64(1).Zeros(64).bytes(), kUnsupported, "an array of arrays"},
      {OneKey(kArrayValue).U32(77).U64(1).Zeros(64).bytes(), kUnsupported, "unknown metadata type 77"},
      {OneKey(kArrayValue).U32(kU32Value).U64(UINT64_MAX).Zeros(64).bytes(), kLarge, "at most 2097152"},
      {OneKey(kArrayValue).U32(kU32Value).U64(1'000'000).Zeros(64).bytes(), kCorrupt, "needs 4000000 bytes"},
      {OneKey(kArrayValue).U32(kStringValue).U64(1'000'000).Zeros(64).bytes(), kCorrupt, "needs 8000000 bytes"},
      {OneKey(kArrayValue).U32(kU64Value).U64(1).U64(UINT64_MAX).bytes(), kUnsupported, "above 2^63 - 1"},
      {Raw().Gguf(0, 2).String("k").U32(kU32Value).U32(1).String("k").U32(kU32Value).U32(2).bytes(), kCorrupt,
       "key k appears twice"},
  };
}

TEST(GgufHostileTest, EveryLieIsRefusedByName) {
  for (const Lie& lie : Lies()) {
    SCOPED_TRACE(lie.message);
    const auto file = LoadGguf(lie.bytes);
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().code, lie.code) << file.error().message;
    EXPECT_THAT(file.error().message, HasSubstr(std::string(lie.message)));
    EXPECT_THAT(file.error().message, HasSubstr("m.gguf"));
  }
}

TEST(GgufHostileTest, ArraysOfArraysAtAnyDepthAreRefusedAtTheFirst) {
  Raw raw = OneKey(kArrayValue);
  for (int i = 0; i < 10'000; ++i) raw.U32(kArrayValue).U64(1);
  EXPECT_THAT(LoadGguf(raw.bytes()).error().message, HasSubstr("an array of arrays"));
}

TEST(GgufHostileTest, ControlCharactersOfAFileNeverReachAMessage) {
  const Bytes bytes = Raw().Gguf(1, 0).Tensor("t\n\x1b[31m", {0}, kF32, 0).Zeros(64).bytes();
  const auto file = LoadGguf(bytes);
  ASSERT_FALSE(file);
  for (const char c : file.error().message) EXPECT_GE(c, ' ');
}

// Reads all of what loaded, so that a sanitizer sees every access.
void ReadAll(const ModelFile& file) {
  for (const TensorInfo& tensor : file.tensors()) {
    ASSERT_LE(tensor.bytes, file.total_bytes());
    Bytes bytes(tensor.bytes);
    ASSERT_TRUE(file.Read(tensor, 0, bytes));
    ASSERT_EQ(file.Find(tensor.name), &tensor);
  }
}

struct Sample {
  std::string name;
  Bytes bytes;
  size_t bytes_needed;  // without trailing padding
};
std::vector<Sample> Samples() {
  const Bytes gguf = *TinyGguf().Build();
  const Bytes safetensors = TinySafetensors().Build();
  return {{"m.gguf", gguf, gguf.size() - 12}, {"m.safetensors", safetensors, safetensors.size()}};
}

TEST(DamageTest, EveryCutIsRefusedWithWhatIsMissing) {
  for (const Sample& sample : Samples()) {
    for (size_t size = 0; size < sample.bytes_needed; ++size) {
      const Bytes cut(sample.bytes.begin(), sample.bytes.begin() + static_cast<std::ptrdiff_t>(size));
      const auto file = LoadBytes(cut, sample.name);
      ASSERT_FALSE(file) << sample.name << " cut at " << size;
      EXPECT_THAT(file.error().message, HasSubstr(sample.name));
    }
    ASSERT_TRUE(LoadBytes(sample.bytes, sample.name));
  }
}

TEST(DamageTest, ACutInsideATensorNamesItAndBothSizes) {
  const Bytes whole = *TinyGguf().Build();
  const Bytes cut(whole.begin(), whole.end() - 13);
  const auto file = LoadGguf(cut);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ErrorCode::kCorruptData);
  EXPECT_THAT(file.error().message,
              HasSubstr("output_norm.weight needs bytes up to " + std::to_string(whole.size() - 12)));
  EXPECT_THAT(file.error().message, HasSubstr("only " + std::to_string(cut.size())));
}

TEST(DamageTest, FlippedBitsLoadOrFailCleanly) {
  Random random(11);
  for (const Sample& sample : Samples()) {
    // Each single bit once, then up to eight at a time.
    const size_t bits = sample.bytes.size() * 8;
    for (size_t round = 0; round < bits + 50'000; ++round) {
      Bytes damaged = sample.bytes;
      const uint64_t flips = round < bits ? 1 : 1 + random.Below(8);
      for (uint64_t i = 0; i < flips; ++i) {
        const size_t bit = round < bits ? round : random.Below(bits);
        damaged[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
      }
      const auto file = LoadBytes(damaged, sample.name);
      if (file)
        ReadAll(**file);
      else
        ASSERT_FALSE(file.error().message.empty());
    }
  }
}

TEST(DamageTest, RandomBytesAfterAMagicFailCleanly) {
  Random random(12);
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes = round % 2 == 0 ? Raw().Gguf(random.Below(4), random.Below(4)).bytes()
                                 : Raw().U64(random.Below(64)).Text("{").bytes();
    for (uint64_t i = random.Below(200); i > 0; --i) {
      bytes.push_back(static_cast<std::byte>(random.Next() & (random.Below(2) ? 0xFF : 0x0F)));
    }
    const auto file = LoadBytes(bytes, "m");
    if (file) ReadAll(**file);
  }
}

// Bytes that begin with `head` and go on with zeros, as a sparse file of any size.
class SparseSource final : public ByteSource {
 public:
  SparseSource(Bytes head, uint64_t size) : head_(std::move(head)), size_(size) {}
  uint64_t size() const override { return size_; }
  std::string name() const override { return "m.gguf"; }
  Status Read(uint64_t offset, std::span<std::byte> out) const override {
    for (size_t i = 0; i < out.size(); ++i) out[i] = offset + i < head_.size() ? head_[offset + i] : std::byte{0};
    return {};
  }

 private:
  const Bytes head_;
  const uint64_t size_;
};
Loaded LoadSparse(Bytes head, uint64_t size) {
  std::vector<std::unique_ptr<ByteSource>> sources;
  sources.push_back(std::make_unique<SparseSource>(std::move(head), size));
  return ModelFile::FromSource(std::move(sources));
}

TEST(LimitsTest, CountsThatTheFileCouldHoldStillMeetTheirMaxima) {
  constexpr uint64_t kHuge = 1ull << 50;
  EXPECT_EQ(LoadSparse(Raw().Gguf(kTensorsMax + 1, 0).bytes(), kHuge).error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(LoadSparse(Raw().Gguf(0, kMetaKeysMax + 1).bytes(), kHuge).error().code, ErrorCode::kTooLarge);
  const auto array = [&](uint32_t type, uint64_t count) {
    return LoadSparse(OneKey(kArrayValue).U32(type).U64(count).bytes(), kHuge);
  };
  EXPECT_TRUE(array(kU32Value, kMetaArrayElementsMax));
  EXPECT_THAT(array(kU32Value, kMetaArrayElementsMax + 1).error().message, HasSubstr("at most 2097152"));
  EXPECT_THAT(array(kStringValue, kMetaArrayElementsMax).error().message,
              HasSubstr("needs more than 37748736 bytes of memory"));
  EXPECT_TRUE(LoadSparse(OneKey(kStringValue).U64(kMetaStringBytesMax).bytes(), kHuge));
  EXPECT_EQ(LoadSparse(OneKey(kStringValue).U64(kMetaStringBytesMax + 1).bytes(), kHuge).error().code,
            ErrorCode::kTooLarge);
  EXPECT_THAT(LoadSparse(Raw().Gguf(0, 1).U64(kMetaKeyBytesMax + 1).bytes(), kHuge).error().message,
              HasSubstr("at most 65535"));
  EXPECT_THAT(LoadSparse(Raw().Gguf(1, 0).U64(kTensorNameBytesMax + 1).bytes(), kHuge).error().message,
              HasSubstr("m.gguf: tensor 1 of 1: the name has 257 bytes; 1 to 256 are read"));
  // One tensor as large as the file allows, and one element more.
  const auto tensor = [](uint64_t elements) { return Raw().Gguf(1, 0).Tensor("t", {elements}, 24, 0).Pad().bytes(); };
  EXPECT_TRUE(LoadSparse(tensor(kHuge - 64), kHuge));
  EXPECT_FALSE(LoadSparse(tensor(kHuge - 63), kHuge));
}

// Peak resident bytes since the last reset; 0 where the kernel does not say.
uint64_t PeakResidentBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "VmHWM:") continue;
    uint64_t kilobytes = 0;
    status >> kilobytes;
    return kilobytes * 1024;
  }
  return 0;
}
bool ResetPeak() {
  malloc_trim(0);
  std::ofstream clear("/proc/self/clear_refs");
  clear << "5" << std::flush;
  return clear.good();
}

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#endif

// Loads within a second and 64 MiB, whether it succeeds or not.
void ExpectCheap(std::string_view what, const Bytes& bytes, std::string name, bool loads) {
  SCOPED_TRACE(what);
  const bool measurable = !kSanitized && ResetPeak();
  const uint64_t before = ResidentMemoryBytes();
  const auto begin = std::chrono::steady_clock::now();
  const auto file = LoadBytes(bytes, std::move(name));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const uint64_t peak = PeakResidentBytes();
  EXPECT_EQ(file.has_value(), loads) << (file ? "" : file.error().message);
  if (kSanitized) return;
  EXPECT_LT(seconds, 1.0);
  if (measurable && peak > before) EXPECT_LE(peak - before, 64 * kMiB);
  std::printf("  %s: %.0f ms, %.1f MiB\n", std::string(what).c_str(), seconds * 1e3,
              peak > before ? static_cast<double>(peak - before) / kMiB : 0.0);
}

TEST(LimitsTest, TheLargestHeadersStayUnderASecondAnd64MiB) {
  Raw tensors;
  tensors.Gguf(kTensorsMax, 0);
  const std::string stem(kTensorNameBytesMax - 8, 'n');
  for (uint64_t i = 0; i < kTensorsMax; ++i) {
    tensors.Tensor(stem + std::to_string(10'000'000 + i), {1, 1, 1, 1}, kF32, i * 32);
  }
  tensors.Pad().Zeros(kTensorsMax * 32);
  ExpectCheap("65536 tensors of the longest names", tensors.bytes(), "m.gguf", true);

  Raw strings = OneKey(kArrayValue).U32(kStringValue).U64(600'000);
  for (int i = 0; i < 600'000; ++i) strings.String("sixteen bytes...");
  ExpectCheap("600000 strings", strings.bytes(), "m.gguf", false);

  Raw arrays;
  arrays.Gguf(0, 8);
  for (int i = 0; i < 8; ++i) {
    arrays.String("k" + std::to_string(i))
        .U32(kArrayValue)
        .U32(0)
        .U64(kMetaArrayElementsMax)
        .Zeros(kMetaArrayElementsMax);
  }
  ExpectCheap("eight arrays of 2 Mi bytes", arrays.bytes(), "m.gguf", false);

  std::string header = "{";
  for (uint64_t i = 0; i < kTensorsMax; ++i) {
    header += (i > 0 ? ",\"" : "\"") + std::string(180, 'n') + std::to_string(i) +
              R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  }
  header += "}";
  ASSERT_LE(header.size(), kHeaderBytesMax);
  const Bytes safetensors = SafetensorsOf(header, 0);
  header = {};
  ExpectCheap("65536 safetensors entries", safetensors, "m.safetensors", true);

  const Bytes spaces = SafetensorsOf("{" + std::string(kHeaderBytesMax - 2, ' ') + "}", 0);
  ExpectCheap("16 MiB of spaces", spaces, "m.safetensors", false);
  const Bytes text = SafetensorsOf(R"({"__metadata__":{"a":")" + std::string(kHeaderBytesMax - 40, 'x') + "\"}}", 0);
  ExpectCheap("a string of 16 MiB", text, "m.safetensors", false);
  std::string metadata = R"({"__metadata__":{)";
  for (int i = 0; i < 15; ++i) {
    metadata += (i > 0 ? ",\"k" : "\"k") + std::to_string(i) + "\":\"" + std::string(kMiB - 100, 'x') + "\"";
  }
  const Bytes strings_of_1_mib = SafetensorsOf(metadata + "}}", 0);
  metadata = {};
  ExpectCheap("15 metadata strings of 1 MiB", strings_of_1_mib, "m.safetensors", true);
}

}  // namespace
}  // namespace headrace
