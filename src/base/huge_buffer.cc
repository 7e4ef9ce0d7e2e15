#include "base/huge_buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

namespace headrace {
namespace {

constexpr uint64_t kHugePage = 2 << 20;
// A kernel that prefetches ahead of the last block stays inside the mapping.
constexpr uint64_t kTailBytes = 4096;

}  // namespace

Result<HugeBuffer> HugeBuffer::Allocate(uint64_t bytes, const char* what) {
  HugeBuffer buffer;
  constexpr uint64_t kMostBytes = 1ull << 46;
  if (bytes > kMostBytes) {
    return Fail(ErrorCode::kOverloaded, fmt::format("{} would need {} bytes, more than any machine has", what, bytes));
  }
  buffer.bytes_ = bytes;
  const uint64_t used_bytes = (bytes + kTailBytes + kHugePage - 1) / kHugePage * kHugePage;
  buffer.mapped_bytes_ = used_bytes + kHugePage;
  void* mapping =
      mmap(nullptr, buffer.mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    return Fail(ErrorCode::kOverloaded,
                fmt::format("no memory for {} ({:.1f} MiB); free some, or choose a smaller model, --ctx or --kv-memory",
                            what, static_cast<double>(bytes) / (1 << 20)));
  }
  buffer.mapping_ = mapping;
  const auto address = reinterpret_cast<uintptr_t>(mapping);
  buffer.data_ = reinterpret_cast<std::byte*>((address + kHugePage - 1) / kHugePage * kHugePage);
  madvise(buffer.data_, used_bytes, MADV_HUGEPAGE);
  return buffer;
}

HugeBuffer::~HugeBuffer() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_bytes_);
}

}  // namespace headrace
