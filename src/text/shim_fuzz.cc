// Fuzzes the C interface: whatever bytes come in, a status comes out. The first byte picks the entry; the rest is its
// input. Panics count as faults.
#include <textshim.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

namespace {

void Expect(ts_status status, ts_buf& err) {
  ts_buf_free(&err);
  if (status == TS_PANIC) std::abort();
}

void Encode(ts_tokenizer* tokenizer, const uint8_t* data, size_t size) {
  for (uint32_t sentinel : {0u, 0xFDD0u}) {
    const ts_encode_options options{.parse_special = true, .add_head = true, .add_tail = true, .sentinel = sentinel};
    ts_ids ids{};
    ts_buf err{};
    Expect(ts_encode(tokenizer, data, size, &options, &ids, &err), err);
    for (size_t i = 0; i < ids.len; ++i) {
      ts_token token{};
      if (!ts_tokenizer_token(tokenizer, ids.data[i], &token)) std::abort();
    }
    ts_ids_free(&ids);
  }
}

// 256 one-byte pieces and whatever pieces and merges the input spells, separated by bytes 0xFF.
void Arrays(const uint8_t* data, size_t size, std::string_view model, std::string_view pre) {
  std::vector<uint8_t> bytes(data, data + size);
  std::vector<size_t> ends;
  std::vector<int32_t> types;
  std::vector<float> scores;
  size_t kept = 0;
  for (uint8_t byte : std::vector<uint8_t>(bytes)) {
    if (byte != 0xFF) {
      bytes[kept++] = byte;
      continue;
    }
    ends.push_back(kept);
    types.push_back(kept > 0 ? bytes[kept - 1] % 7 : 1);
    scores.push_back(static_cast<float>(kept % 13) - 6);
  }
  const ts_vocabulary vocabulary{.model = reinterpret_cast<const uint8_t*>(model.data()),
                                 .model_len = model.size(),
                                 .pre = reinterpret_cast<const uint8_t*>(pre.data()),
                                 .pre_len = pre.size(),
                                 .tokens = bytes.data(),
                                 .tokens_len = kept,
                                 .token_ends = ends.data(),
                                 .token_count = ends.size(),
                                 .scores = scores.data(),
                                 .score_count = scores.size(),
                                 .types = types.data(),
                                 .type_count = types.size(),
                                 .merges = bytes.data(),
                                 .merges_len = kept,
                                 .merge_ends = ends.data(),
                                 .merge_count = model == "gpt2" ? ends.size() / 8 : 0,
                                 .bos = 0,
                                 .eos = 1,
                                 .unk = 2,
                                 .pad = -1,
                                 .add_bos = true,
                                 .add_eos = false,
                                 .add_space_prefix = true};
  ts_tokenizer* tokenizer = nullptr;
  ts_buf err{};
  Expect(ts_tokenizer_from_arrays(&vocabulary, &tokenizer, &err), err);
  if (tokenizer == nullptr) return;
  Encode(tokenizer, data, size);
  ts_tokenizer_free(tokenizer);
}

void Json(const uint8_t* data, size_t size) {
  ts_tokenizer* tokenizer = nullptr;
  ts_buf err{};
  Expect(ts_tokenizer_from_json(data, size, nullptr, 0, &tokenizer, &err), err);
  if (tokenizer == nullptr) return;
  Encode(tokenizer, data, size);
  ts_tokenizer_free(tokenizer);
}

void Template(const uint8_t* data, size_t size) {
  static constexpr std::string_view kContext =
      R"({"messages":[{"role":"user","content":"a<b> 1"}],"n":3,"x":[1,2.5,null]})";
  ts_template* chat_template = nullptr;
  ts_buf err{};
  Expect(ts_template_new(data, size, &chat_template, &err), err);
  if (chat_template == nullptr) return;
  const ts_render_limits limits{
      .steps_max = 20'000, .output_bytes_max = 1 << 16, .time_ms_max = 200, .unix_seconds = 0, .utc_offset_seconds = 0};
  ts_buf out{};
  ts_buf render_err{};
  Expect(ts_template_render(chat_template, reinterpret_cast<const uint8_t*>(kContext.data()), kContext.size(), &limits,
                            &out, &render_err),
         render_err);
  ts_buf_free(&out);
  ts_template_free(chat_template);
}

void Context(const uint8_t* data, size_t size) {
  static constexpr std::string_view kSource =
      "{{ x | tojson(indent=2) }}{{ x }}{% for m in messages %}{{ m.role }}{% endfor %}";
  ts_template* chat_template = nullptr;
  ts_buf err{};
  Expect(ts_template_new(reinterpret_cast<const uint8_t*>(kSource.data()), kSource.size(), &chat_template, &err), err);
  const ts_render_limits limits{
      .steps_max = 20'000, .output_bytes_max = 1 << 16, .time_ms_max = 200, .unix_seconds = 0, .utc_offset_seconds = 0};
  ts_buf out{};
  ts_buf render_err{};
  Expect(ts_template_render(chat_template, data, size, &limits, &out, &render_err), render_err);
  ts_buf_free(&out);
  ts_template_free(chat_template);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static constexpr std::string_view kPres[] = {"smollm",  "gpt-2",        "llama-bpe",      "qwen2",
                                               "default", "deepseek-llm", "deepseek-coder", "deepseek-v3"};
  if (size < 1) return 0;
  const uint8_t entry = data[0] % 12;
  ++data;
  --size;
  if (entry < 8) {
    Arrays(data, size, "gpt2", kPres[entry]);
  } else if (entry == 8) {
    Arrays(data, size, "llama", "");
  } else if (entry == 9) {
    Json(data, size);
  } else if (entry == 10) {
    Template(data, size);
  } else {
    Context(data, size);
  }
  return 0;
}
