// What a model file may ask for. Together they keep the reader of any hostile file under 64 MiB, checked below; a
// folder whose tensor table and texts are both at their maxima takes 72 MiB.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace {

constexpr uint64_t kMiB = 1ull << 20;

// The largest open models, with one tensor per expert and matrix, stay below 50,000 in GGUF and safetensors alike.
constexpr uint64_t kTensorsMax = 65'536;
// The GGUF specification says 64 bytes; published safetensors names reach about 120.
constexpr uint64_t kTensorNameBytesMax = 256;
constexpr uint32_t kTensorDimensionsMax = 4;  // the GGUF specification
constexpr uint32_t kSafetensorsDimensionsMax = 8;
// A sixtieth of this is usual.
constexpr uint64_t kMetaKeysMax = 4'096;
constexpr uint64_t kMetaKeyBytesMax = 65'535;  // the GGUF specification
constexpr uint64_t kMetaStringBytesMax = 16 * kMiB;
// Vocabularies have up to 262,144 tokens and about twice as many merges.
constexpr uint64_t kMetaArrayElementsMax = 1ull << 21;
// All metadata of a model as it lies in memory; a vocabulary of 262,144 tokens takes about 12 MiB.
constexpr uint64_t kMetaBytesMax = 36 * kMiB;
// GGUF alignments in use are 32 and 4096.
constexpr uint64_t kAlignmentMax = kMiB;
// The JSON header of one safetensors file: 65,536 tensors of about 200 bytes.
constexpr uint64_t kHeaderBytesMax = 16 * kMiB;
// model.safetensors.index.json.
constexpr uint64_t kIndexBytesMax = 16 * kMiB;
// tokenizer.json of a vocabulary of 262,144 has 33.4 MB; the other texts of a folder are small.
constexpr uint64_t kTokenizerTextBytesMax = 40 * kMiB;
constexpr uint64_t kConfigTextBytesMax = kMiB;
constexpr int kJsonDepthMax = 32;
// One string of a safetensors header or index; the parser holds it several times.
constexpr uint64_t kJsonTokenBytesMax = kMiB;
// Shards of one model: below the usual limit of 1024 open files.
constexpr uint64_t kFilesMax = 512;

// A TensorInfo, its name, its shape, two heap blocks' overhead and its slot in the name index.
constexpr uint64_t kTensorEntryBytesMax = 88 + kTensorNameBytesMax + kSafetensorsDimensionsMax * 8 + 2 * 16 + 8;
static_assert(kTensorsMax * kTensorEntryBytesMax + kMetaBytesMax <= 64 * kMiB, "a GGUF header");
static_assert(kTensorsMax * kTensorEntryBytesMax + kHeaderBytesMax <= 64 * kMiB, "a safetensors header");
static_assert(kTensorsMax * kTensorEntryBytesMax + kIndexBytesMax <= 64 * kMiB, "a folder's index");
static_assert(kTensorsMax * kTensorEntryBytesMax + kTokenizerTextBytesMax + 4 * kConfigTextBytesMax <= 72 * kMiB,
              "a folder");
static_assert(kMetaStringBytesMax <= kMetaBytesMax && kMetaKeyBytesMax <= kMetaBytesMax);

}  // namespace headrace
