// Counts allocations of a test program while counting is on: by replacing operator new, so one source of a program
// includes this. One thread. Only tests include it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace {
bool counting = false;
uint64_t allocations = 0;
}  // namespace

#if defined(__has_feature) && __has_feature(thread_sanitizer)
constexpr bool kCountsAllocations = false;  // that run-time brings an operator new of its own
#else
constexpr bool kCountsAllocations = true;
void* operator new(size_t bytes) {
  if (counting) ++allocations;
  void* p = std::malloc(bytes);
  if (p == nullptr) std::abort();
  return p;
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }  // NOLINT(clang-analyzer-cplusplus.NewDelete)
#endif
