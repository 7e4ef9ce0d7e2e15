// Writes a small llama: make_tiny_gguf FILE [base].
//
// Without `base` the smallest one that `show` can read; it lacks most tensors. `base` is whole and answers, and has no
// chat template, as models that were only pretrained: one token a byte, layers that add nothing, and an embedding that
// is its own output, so that the likeliest next byte is the last one again ("abc" goes on "cccc").
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/random.h"
#include "executor/scripted/script.h"
#include "weights/gguf_writer.h"

namespace headrace {
namespace {

constexpr int64_t kWidth = 32, kVocabulary = 8;
constexpr int64_t kHeads = 2, kKvHeads = 1;

void AddMatrix(GgufWriter& writer, const std::string& name, int64_t rows) {
  writer.AddTensor(name, DType::kF32, {rows, kWidth}, std::vector<std::byte>(static_cast<size_t>(rows * kWidth) * 4));
}

void AddFloats(GgufWriter& writer, const std::string& name, std::vector<int64_t> shape,
               const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  writer.AddTensor(name, DType::kF32, std::move(shape), std::vector<std::byte>(bytes.begin(), bytes.end()));
}

void AddShape(GgufWriter& writer, int64_t vocabulary) {
  writer.Add("general.architecture", MetaValue::String("llama"));
  writer.Add("general.name", MetaValue::String("Tiny"));
  writer.Add("general.license", MetaValue::String("cc0-1.0"));
  const auto number = [&](const char* key, int64_t value) {
    writer.Add(std::string("llama.") + key, MetaValue::U32(static_cast<uint32_t>(value)));
  };
  number("block_count", 1);
  number("embedding_length", kWidth);
  number("feed_forward_length", kWidth);
  number("attention.head_count", kHeads);
  number("attention.head_count_kv", kKvHeads);
  number("context_length", 128);
  number("vocab_size", vocabulary);
  number("rope.dimension_count", kWidth / kHeads);
  writer.Add("llama.attention.layer_norm_rms_epsilon", MetaValue::F32(1e-5f));
  writer.Add("tokenizer.ggml.model", MetaValue::String("gpt2"));
}

void AddForShow(GgufWriter& writer) {
  AddShape(writer, kVocabulary);
  writer.Add("tokenizer.ggml.pre", MetaValue::String("smollm"));
  writer.Add("tokenizer.ggml.tokens", MetaValue::Strings({"a", "b", "c", "d", "e", "f", "g", "h"}));
  writer.Add("tokenizer.chat_template", MetaValue::String("{{ messages }}"));
  AddMatrix(writer, "token_embd.weight", kVocabulary);
  AddMatrix(writer, "blk.0.attn_q.weight", kWidth);
}

void AddBase(GgufWriter& writer) {
  const Vocabulary bytes = ScriptVocabulary(Script{});
  const auto vocabulary = static_cast<int64_t>(bytes.tokens.size());
  AddShape(writer, vocabulary);
  writer.Add("tokenizer.ggml.pre", MetaValue::String("default"));
  writer.Add("tokenizer.ggml.tokens", MetaValue::Strings(bytes.tokens));
  writer.Add("tokenizer.ggml.token_type", MetaValue::I32s({bytes.types.begin(), bytes.types.end()}));
  writer.Add("tokenizer.ggml.eos_token_id", MetaValue::U32(kScriptEnd));
  // Signs that differ from token to token: a row's product with itself is larger than with any other.
  std::vector<float> embedding;
  for (int64_t id = 0; id < vocabulary; ++id) {
    const uint64_t signs = SplitMix64(static_cast<uint64_t>(id));
    for (int64_t i = 0; i < kWidth; ++i) embedding.push_back((signs >> i & 1) != 0 ? 1.0f : -1.0f);
  }
  const std::vector<float> ones(static_cast<size_t>(kWidth), 1.0f);
  AddFloats(writer, "token_embd.weight", {vocabulary, kWidth}, embedding);
  AddFloats(writer, "output_norm.weight", {kWidth}, ones);
  AddFloats(writer, "blk.0.attn_norm.weight", {kWidth}, ones);
  AddFloats(writer, "blk.0.ffn_norm.weight", {kWidth}, ones);
  for (const char* name : {"attn_q", "attn_output", "ffn_gate", "ffn_up", "ffn_down"})
    AddMatrix(writer, std::string("blk.0.") + name + ".weight", kWidth);
  for (const char* name : {"attn_k", "attn_v"})
    AddMatrix(writer, std::string("blk.0.") + name + ".weight", kWidth / kHeads * kKvHeads);
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  const bool base = argc == 3 && std::string_view(argv[2]) == "base";
  if (argc != 2 && !base) return 2;
  headrace::GgufWriter writer;
  base ? headrace::AddBase(writer) : headrace::AddForShow(writer);
  const auto written = writer.Write(argv[1]);
  if (!written) std::fprintf(stderr, "%s\n", written.error().message.c_str());
  return written ? 0 : 1;
}
