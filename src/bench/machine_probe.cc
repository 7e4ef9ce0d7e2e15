#include "bench/machine_probe.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>

#include "base/cpu.h"

namespace headrace {
namespace {

constexpr TimeNs kMeasureNs = 60 * kNsPerMs;
constexpr int64_t kUnitBytes = 1 << 20;
constexpr uint64_t kBufferBytesMin = 256ull << 20;
// A unit of dot products takes about this long: long beside its claim, short beside a measurement.
constexpr TimeNs kDotUnitNs = 200 * kNsPerUs;

ProbeKernels ProbeOf(std::string_view kernels) {
#if defined(__x86_64__)
  if (kernels == "avx2" || kernels == "avxvnni") {
    ProbeKernels narrow = kAvx2Probe;
    if (kernels == "avx2") return narrow;
    narrow.dots = AvxVnniDots;
    narrow.dots_name = "vpdpbusd, 256 bits";
    return narrow;
  }
  ProbeKernels probe = kAvx512Probe;
  if (kernels == "avx512") return probe;
  if (kernels == "amx") {
    probe.tile_dots = AmxTileDots;
    probe.tile_dots_name = "tdpbsud";
    return probe;
  }
#elif defined(__aarch64__)
  if (kernels == "neon") return kNeonProbe;
#endif
  return kReferenceProbe;
}

}  // namespace

uint64_t LargestCacheBytes() {
  uint64_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream in("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
    uint64_t size = 0;
    char unit = 0;
    if (in >> size >> unit) largest = std::max(largest, size << (unit == 'M' ? 20 : unit == 'K' ? 10 : 0));
  }
  return largest;
}

Result<std::unique_ptr<MachineProbe>> MachineProbe::Open(int threads, std::string_view kernels, uint64_t buffer_bytes,
                                                         const Clock& clock) {
  std::unique_ptr<MachineProbe> probe(new MachineProbe(threads, ProbeOf(kernels), clock));
  const uint64_t cache = LargestCacheBytes();
  const uint64_t wanted = buffer_bytes > 0
                              ? buffer_bytes
                              : std::min(std::max(kBufferBytesMin, cache + cache / 4), AvailableMemoryBytes() / 2);
  const uint64_t bytes = std::max<uint64_t>(wanted / kUnitBytes, 1) * kUnitBytes;
  HR_ASSIGN_OR_RETURN(probe->buffer_, HugeBuffer::Allocate(bytes, "the probe of the read bandwidth"));
  // Written by the thread that will read it, and by something: the zero page of the system would be read from a cache.
  probe->pool_.Run([&](int worker) {
    probe->pool_.For(worker, static_cast<int64_t>(bytes) / kUnitBytes, [&](int64_t unit) {
      std::memset(probe->buffer_.data() + unit * kUnitBytes, 1, static_cast<size_t>(kUnitBytes));
    });
  });
  return probe;
}

double MachineProbe::ReadRate(uint64_t bytes) {
  const auto units = static_cast<int64_t>(
      std::clamp<uint64_t>(bytes / kUnitBytes, static_cast<uint64_t>(pool_.threads()), buffer_.bytes() / kUnitBytes));
  std::atomic<uint64_t> sink{0};
  int64_t passes = 0;
  const TimeNs start = clock_.Now();
  TimeNs took = 0;
  do {
    pool_.Run([&](int worker) {
      pool_.For(worker, units, [&](int64_t unit) {
        sink.fetch_xor(kernels_.read(buffer_.data() + unit * kUnitBytes, kUnitBytes), std::memory_order_relaxed);
      });
    });
    ++passes;
    took = clock_.Now() - start;
  } while (took < kMeasureNs);
  return static_cast<double>(passes * units * kUnitBytes) / static_cast<double>(took);
}

double MachineProbe::RateOf(Dots dots) {
  int32_t sink = 0;
  int64_t rounds = 1000;
  for (TimeNs took = 0; took < kDotUnitNs; rounds *= 2) {
    const TimeNs start = clock_.Now();
    dots(rounds, &sink);
    took = clock_.Now() - start;
  }
  std::atomic<int64_t> operations{0};
  const TimeNs start = clock_.Now();
  TimeNs took = 0;
  do {
    pool_.Run([&](int worker) {
      pool_.For(worker, int64_t{16} * pool_.threads(), [&](int64_t) {
        int32_t mine = 0;
        operations.fetch_add(dots(rounds, &mine), std::memory_order_relaxed);
      });
    });
    took = clock_.Now() - start;
  } while (took < kMeasureNs);
  return static_cast<double>(operations.load()) / static_cast<double>(took);
}

}  // namespace headrace
