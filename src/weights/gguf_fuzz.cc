// libFuzzer: any bytes as a GGUF file either load, and then every tensor can be read, or fail cleanly.
// Seeds: corpus/gguf.
#include <cstdint>
#include <cstdlib>

#include "weights/model_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace;
  std::vector<std::unique_ptr<ByteSource>> sources;
  sources.push_back(SourceFromMemory(std::as_bytes(std::span(data, size)), "fuzz.gguf"));
  const auto file = ModelFile::FromSource(std::move(sources));
  if (!file) return 0;
  for (const TensorInfo& tensor : (*file)->tensors()) {
    std::vector<std::byte> bytes(tensor.bytes);
    if (!(*file)->Read(tensor, 0, bytes) || (*file)->Find(tensor.name) != &tensor) std::abort();
  }
  return 0;
}
