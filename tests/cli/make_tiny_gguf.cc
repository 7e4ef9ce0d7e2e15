// Writes the smallest llama that `show` can read: make_tiny_gguf FILE.
#include <cstdio>

#include "weights/gguf_writer.h"

namespace headrace {
namespace {

constexpr int64_t kWidth = 32, kVocabulary = 8;

void AddMatrix(GgufWriter& writer, const char* name, int64_t rows) {
  writer.AddTensor(name, DType::kF32, {rows, kWidth}, std::vector<std::byte>(static_cast<size_t>(rows * kWidth) * 4));
}

Status WriteTiny(const char* path) {
  GgufWriter writer;
  writer.Add("general.architecture", MetaValue::String("llama"));
  writer.Add("general.name", MetaValue::String("Tiny"));
  writer.Add("general.license", MetaValue::String("cc0-1.0"));
  writer.Add("llama.block_count", MetaValue::U32(1));
  writer.Add("llama.embedding_length", MetaValue::U32(kWidth));
  writer.Add("llama.feed_forward_length", MetaValue::U32(kWidth));
  writer.Add("llama.attention.head_count", MetaValue::U32(2));
  writer.Add("llama.attention.head_count_kv", MetaValue::U32(1));
  writer.Add("llama.context_length", MetaValue::U32(128));
  writer.Add("llama.vocab_size", MetaValue::U32(kVocabulary));
  writer.Add("llama.rope.dimension_count", MetaValue::U32(16));
  writer.Add("llama.attention.layer_norm_rms_epsilon", MetaValue::F32(1e-5f));
  writer.Add("tokenizer.ggml.model", MetaValue::String("gpt2"));
  writer.Add("tokenizer.ggml.pre", MetaValue::String("smollm"));
  writer.Add("tokenizer.ggml.tokens", MetaValue::Strings({"a", "b", "c", "d", "e", "f", "g", "h"}));
  writer.Add("tokenizer.chat_template", MetaValue::String("{{ messages }}"));
  AddMatrix(writer, "token_embd.weight", kVocabulary);
  AddMatrix(writer, "blk.0.attn_q.weight", kWidth);
  return writer.Write(path);
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto written = headrace::WriteTiny(argv[1]);
  if (!written) std::fprintf(stderr, "%s\n", written.error().message.c_str());
  return written ? 0 : 1;
}
