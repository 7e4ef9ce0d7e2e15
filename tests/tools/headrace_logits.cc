// Writes the logits of token windows, for comparison with an oracle; or the ids of a text.
//   headrace_logits MODEL [--threads N] [--isa NAME] [--kv-type int8] [--context TOKENS] [--last N] [--keep-prefix 1]
// stdin: windows, each [int32 count][int32 ids x count]; stdout: for each window [float32 x rows x vocabulary], the
// rows being all positions, or the last N. With --keep-prefix a window goes on behind what it shares with the one
// before, whose keys and values are still there; of that part no logits are wanted.
//   headrace_logits MODEL --tokenize
// stdin: a text; stdout: its int32 ids, without BOS and EOS.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/log.h"
#include "executor/cpu/cpu_executor.h"
#include "kv_cache/block_pool.h"
#include "text/test_vocabulary.h"
#include "text/tokenizer.h"

namespace headrace {
namespace {

constexpr int32_t kChunk = 64;

bool ReadExactly(void* out, size_t bytes) { return std::fread(out, 1, bytes, stdin) == bytes; }

int Die(const std::string& message) {
  std::fprintf(stderr, "headrace_logits: %s\n", message.c_str());
  return 1;
}

int Tokenize(const char* path) {
  auto model = ReadTestModel(path);
  if (!model) return Die(model.error().message);
  const auto tokenizer = Tokenizer::FromVocabulary(std::move(model->vocabulary));
  if (!tokenizer) return Die(tokenizer.error().message);
  std::string text;
  char part[4096];
  for (size_t got = 0; (got = std::fread(part, 1, sizeof part, stdin)) > 0;) text.append(part, got);
  const auto ids = (*tokenizer)->Encode(text, {});
  if (!ids) return Die(ids.error().message);
  return std::fwrite(ids->data(), sizeof(int32_t), ids->size(), stdout) == ids->size() ? 0 : Die("stdout is closed");
}

// Feeds one window in chunks, from `kept` on; the logits of its last `wanted` rows go to stdout.
bool RunWindow(CpuExecutor& executor, const std::vector<int32_t>& ids, int32_t kept, int32_t wanted) {
  StepInput input;
  const auto count = static_cast<int32_t>(ids.size());
  for (int32_t first = kept; first < count; first += kChunk) {
    const int32_t rows = std::min(kChunk, count - first);
    input.Clear();
    for (int32_t b = 0; b < BlocksFor(count); ++b) input.blocks.push_back(b);
    input.spans.push_back({1, 0, rows, first, count, 0, static_cast<int32_t>(input.blocks.size())});
    for (int32_t r = 0; r < rows; ++r) {
      input.token_ids.push_back(ids[static_cast<size_t>(first + r)]);
      if (first + r >= count - wanted) input.samples.push_back({.row = r, .params = {}});
    }
    const auto logits = executor.ForwardOnly(input);
    const size_t floats = input.samples.size() * static_cast<size_t>(executor.Describe().vocab_size);
    if (!logits || std::fwrite(*logits, sizeof(float), floats, stdout) != floats) return false;
  }
  return std::fflush(stdout) == 0;
}

int Main(int argc, char** argv) {
  if (argc < 2)
    return Die(
        "usage: headrace_logits MODEL [--threads N] [--isa NAME] [--kv-type int8] [--context TOKENS] [--last N] "
        "[--keep-prefix 1], or headrace_logits MODEL --tokenize");
  StartLog("warn", LogFormat::kText);  // standard output belongs to the logits
  if (argc == 3 && std::strcmp(argv[2], "--tokenize") == 0) return Tokenize(argv[1]);
  int32_t last = INT32_MAX;
  bool keep_prefix = false;
  CpuExecutorOptions options{.threads = 2, .rows_max = kChunk, .logit_rows_max = kChunk, .sequences_max = 1};
  for (int i = 2; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--threads") == 0) options.threads = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--isa") == 0) options.isa = argv[i + 1];
    if (std::strcmp(argv[i], "--kv-type") == 0)
      options.kv_type = std::strcmp(argv[i + 1], "int8") == 0 ? KvType::kInt8 : KvType::kInt16;
    if (std::strcmp(argv[i], "--context") == 0) options.context = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--keep-prefix") == 0) keep_prefix = std::atoi(argv[i + 1]) != 0;
    if (std::strcmp(argv[i], "--last") == 0) last = std::max(std::atoi(argv[i + 1]), 1);
  }
  const auto file = ModelFile::Open(argv[1]);
  if (!file) return Die(file.error().message);
  const auto config = ReadModelConfig(**file);
  if (!config) return Die(config.error().message);
  options.context = options.context > 0 ? std::min(options.context, config->context) : config->context;
  options.kv_bytes = static_cast<uint64_t>(config->KvBytesPerToken(options.kv_type) * options.context);
  const auto executor = CpuExecutor::Load(**file, *config, options);
  if (!executor) return Die(executor.error().message);
  std::vector<int32_t> before;
  for (int32_t count = 0; ReadExactly(&count, sizeof count);) {
    if (count < 1 || count > options.context)
      return Die("a window must hold between 1 and the context's number of tokens");
    std::vector<int32_t> ids(static_cast<size_t>(count));
    if (!ReadExactly(ids.data(), ids.size() * sizeof(int32_t))) return Die("the input ends within a window");
    for (int32_t id : ids) {
      if (id < 0 || id >= config->vocab_size) return Die("a token id is outside the vocabulary");
    }
    const int32_t wanted = std::min(last, count);
    const auto shared = static_cast<int32_t>(std::ranges::mismatch(before, ids).in1 - before.begin());
    if (!RunWindow(**executor, ids, keep_prefix ? std::min(shared, count - wanted) : 0, wanted))
      return Die("a window failed");
    before = std::move(ids);
  }
  return 0;
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) { return headrace::Main(argc, argv); }
