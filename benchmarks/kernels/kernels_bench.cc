// Matrix products alone beside what the processor can do at most, one thread, probe and product in turn:
//   ./dev bench kernels [ISA] [--types Q4_0,Q4_1] [--rows 1,8,32] [--columns 2048] [--megabytes N] [--wide PERCENT]
//   [--repeat R]
// A table of: ns a group (32 columns of one panel's 16 rows, all rows of activations), GB/s of weights and their share
// of the read probe, GOP/s and their share of the int8 probe. One row reads, many multiply; the gates are 85 % of
// reading at one row and 55 % of int8 from 12 rows on. --megabytes: of weights, read in turn; little stays in a cache.
// --wide: of the activations' groups, how many have a second plane.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/huge_buffer.h"
#include "base/random.h"
#include "bench/machine_probe.h"
#include "kernels/formats.h"
#include "kernels/kernel_table.h"
#include "tensor/quantize.h"

namespace headrace {
namespace {

constexpr int64_t kRows = 1024;  // of one matrix

struct Options {
  std::string isa;
  std::vector<std::string> types = {"Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K"};
  std::vector<int64_t> rows = {1, 4, 8, 12, 16, 32, 96, 512};
  int64_t columns = 2048, megabytes = 300, repeat = 5;
  double wide_percent = 5;
};

std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> out;
  std::istringstream in(list);
  for (std::string item; std::getline(in, item, ',');) out.push_back(item);
  return out;
}

[[noreturn]] void Stop(const std::string& why) {
  std::fprintf(stderr, "kernels_bench: %s\n", why.c_str());
  std::exit(2);
}

Options Parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.rfind("--", 0) != 0) {
      o.isa = arg;
      continue;
    }
    if (i + 1 == argc) Stop(arg + " needs a value");
    const std::string value = argv[++i];
    if (arg == "--types") {
      o.types = Split(value);
    } else if (arg == "--rows") {
      o.rows.clear();
      for (const std::string& r : Split(value)) o.rows.push_back(std::max<int64_t>(1, std::atoll(r.c_str())));
    } else if (arg == "--columns") {
      o.columns = std::max<int64_t>(1, std::atoll(value.c_str()) / 256) * 256;
    } else if (arg == "--megabytes") {
      o.megabytes = std::max<int64_t>(1, std::atoll(value.c_str()));
    } else if (arg == "--repeat") {
      o.repeat = std::max<int64_t>(1, std::atoll(value.c_str()));
    } else if (arg == "--wide") {
      o.wide_percent = std::atof(value.c_str());
    } else {
      Stop("no option " + arg + "; there are --types, --rows, --columns, --megabytes, --wide and --repeat");
    }
  }
  return o;
}

DType TypeOf(const std::string& name) {
  for (int t = 0; t < kDTypeCount; ++t) {
    if (Info(static_cast<DType>(t)).name == name && Info(static_cast<DType>(t)).computable &&
        IsQuantised(static_cast<DType>(t)))
      return static_cast<DType>(t);
  }
  Stop("no quantised type " + name);
}

// Copies of one packed matrix.
struct Weights {
  HugeBuffer buffer;
  std::vector<PackedMatrix> matrices;

  Weights(DType type, int64_t columns, int64_t megabytes) {
    Random random(1);
    const auto row_bytes = *RowBytes(type, columns);
    std::vector<float> values(static_cast<size_t>(columns));
    std::vector<std::byte> file(row_bytes * kRows);
    for (int64_t r = 0; r < kRows; ++r) {
      for (float& v : values) v = static_cast<float>(random.Uniform() - 0.5) * 0.2f;
      QuantizeRow(type, values.data(), columns, file.data() + static_cast<uint64_t>(r) * row_bytes);
    }
    const int64_t bytes = (PackedBytes(type, kRows, columns) + 63) / 64 * 64;
    const int64_t count = std::max<int64_t>(1, (megabytes << 20) / bytes);
    auto allocated = HugeBuffer::Allocate(static_cast<uint64_t>(count * bytes) + (1 << 20), "the benchmark's weights");
    if (!allocated) Stop(allocated.error().message);
    buffer = std::move(*allocated);
    for (int64_t m = 0; m < count; ++m) {
      std::byte* data = buffer.data() + m * bytes;
      if (m == 0) {
        for (int64_t p = 0; p * kPanelRows < kRows; ++p)
          PackPanel(type, columns, file.data() + static_cast<uint64_t>(p * kPanelRows) * row_bytes, kPanelRows, p,
                    data);
      } else {
        std::memcpy(data, buffer.data(), static_cast<size_t>(bytes));
      }
      matrices.push_back(DescribePacked(type, kRows, columns, data));
    }
  }
};

// Normal values; outliers in `wide_percent` of the groups, and a ratio that finds them.
struct Inputs {
  static constexpr float kOutlier = 40, kWideRatio = 3;
  std::vector<float> values, scale, scaled_sum, rest_scale, rest_scaled_sum;
  std::vector<int8_t> quants, rest_quants;
  std::vector<int32_t> sum, rest_sum, rest_row, rest_first;
  std::vector<uint8_t> wide, row_is_wide;
  Activations view;

  Inputs(const KernelTable& table, int64_t rows, int64_t columns, double wide_percent) {
    Random random(2);
    const auto n = static_cast<size_t>(rows * columns);
    values.resize(n);
    for (float& v : values) v = static_cast<float>(random.Uniform() + random.Uniform() + random.Uniform() - 1.5);
    for (size_t g = 0; g < n / kGroup; ++g) {
      if (random.Uniform() * 100 < wide_percent) values[g * kGroup + random.Below(kGroup)] = kOutlier;
    }
    quants.resize(n + kTileColumns * kGroup);
    rest_quants.resize(n + kTileColumns * kGroup);
    for (auto* v : {&scale, &scaled_sum, &rest_scale, &rest_scaled_sum}) v->resize(n / kGroup);
    for (auto* v : {&sum, &rest_sum, &rest_row}) v->resize(n / kGroup);
    rest_first.resize(static_cast<size_t>((rows / kWideChunkRows + 1) * (columns / kGroup + 1)));
    wide.resize(n / kGroup);
    row_is_wide.resize(static_cast<size_t>(rows));
    view = Activations{rows,
                       columns,
                       values.data(),
                       columns,
                       wide_percent > 0 ? kWideRatio : 1e9f,
                       quants.data(),
                       scale.data(),
                       scaled_sum.data(),
                       sum.data(),
                       wide.data(),
                       row_is_wide.data(),
                       rest_quants.data(),
                       rest_scale.data(),
                       rest_scaled_sum.data(),
                       rest_sum.data(),
                       rest_row.data(),
                       rest_first.data()};
    for (int64_t r = 0; r < rows; ++r) table.quantize_row(view, r);
    for (int64_t c = 0; c < view.chunks(); ++c) QuantizeWideGroups(table, view, c);
  }
  double WidePercent() const {
    return 100.0 * static_cast<double>(std::count(wide.begin(), wide.end(), 1)) / static_cast<double>(wide.size());
  }
};

double Median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

void Measure(const KernelTable& table, MachineProbe& probe, const Options& options, DType type) {
  const SystemClock clock;
  const Weights weights(type, options.columns, options.megabytes);
  const PackedMatrix& one = weights.matrices[0];
  const double bytes = static_cast<double>(one.panel_bytes * one.panels());
  for (const int64_t rows : options.rows) {
    const Inputs inputs(table, rows, options.columns, options.wide_percent);
    std::vector<float> out(static_cast<size_t>(rows * kRows));
    std::vector<double> rates, read, dots;
    size_t next = 0;
    for (int64_t r = 0; r < options.repeat; ++r) {
      read.push_back(probe.ReadRate(static_cast<uint64_t>(options.megabytes) << 20));
      dots.push_back(probe.DotRate());
      const TimeNs start = clock.Now();
      int64_t products = 0;
      TimeNs took = 0;
      do {
        table.matmul({weights.matrices[next], inputs.view, out.data(), kRows, false}, 0, one.panels());
        next = (next + 1) % weights.matrices.size();
        ++products;
        took = clock.Now() - start;
      } while (took < 60 * kNsPerMs);
      rates.push_back(static_cast<double>(products) * 1e9 / static_cast<double>(took));
    }
    const double rate = Median(rates), gb = rate * bytes * 1e-9;
    const double gop = rate * 2e-9 * static_cast<double>(kRows * options.columns * rows);
    std::printf("| %s | %lld | %.1f %% | %.1f | %.1f | %.0f %% | %.0f | %.0f %% |\n", Info(type).name.data(),
                static_cast<long long>(rows), inputs.WidePercent(),
                1e9 / rate / static_cast<double>(kRows / kPanelRows * options.columns / kGroup), gb,
                100 * gb / Median(read), gop, 100 * gop / Median(dots));
    std::fflush(stdout);
  }
}

int Main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  const auto table = ChooseKernels(options.isa);
  if (!table) Stop(table.error().message);
  const SystemClock clock;
  auto probe = MachineProbe::Open(1, (*table)->name, static_cast<uint64_t>(options.megabytes) << 20, clock);
  if (!probe) Stop(probe.error().message);
  std::printf("Kernels: %s, one thread; reads %.1f GB/s, %s %.0f GOP/s\n\n", (*table)->name,
              (*probe)->ReadRate(static_cast<uint64_t>(options.megabytes) << 20), (*probe)->dots_name(),
              (*probe)->DotRate());
  std::printf(
      "| type | rows | wide groups | ns a group | GB/s | of reading | GOP/s | of int8 "
      "|\n|---|---|---|---|---|---|---|---|\n");
  for (const std::string& name : options.types) Measure(**table, **probe, options, TypeOf(name));
  return 0;
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) { return headrace::Main(argc, argv); }
