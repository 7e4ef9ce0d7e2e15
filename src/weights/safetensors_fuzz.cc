// libFuzzer: any bytes as a safetensors file, and any bytes as its index, load or fail cleanly. A first byte of 'i'
// makes the rest an index over a fixed shard. Seeds: corpus/safetensors.
#include <cstdint>
#include <cstdlib>

#include "weights/model_file.h"
#include "weights/safetensors_writer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace;
  const auto bytes = std::as_bytes(std::span(data, size));
  static const std::vector<std::byte> shard = [] {
    SafetensorsWriter writer;
    writer.AddTensor("a", DType::kU8, {1}, {std::byte{1}});
    return writer.Build();
  }();
  std::vector<std::unique_ptr<ByteSource>> sources;
  if (size > 0 && data[0] == 'i') {
    sources.push_back(SourceFromMemory(shard, "s.safetensors"));
    sources.push_back(SourceFromMemory(bytes.subspan(1), "model.safetensors.index.json"));
  } else {
    sources.push_back(SourceFromMemory(bytes, "fuzz.safetensors"));
  }
  const auto file = ModelFile::FromSource(std::move(sources));
  if (!file) return 0;
  for (const TensorInfo& tensor : (*file)->tensors()) {
    std::vector<std::byte> read(tensor.bytes);
    if (!(*file)->Read(tensor, 0, read) || (*file)->Find(tensor.name) != &tensor) std::abort();
  }
  return 0;
}
