#include "kernels/panel_reader.h"

#include <cstring>

#include "tensor/half.h"

namespace headrace {
namespace {

template <typename T>
const T& As(const std::byte* p) {
  return *reinterpret_cast<const T*>(p);
}

// The codes of four columns in one plane, a byte each.
uint32_t PlaneBits(const std::byte* plane, int bits, int lane, int line) {
  uint32_t four;
  std::memcpy(&four, plane + line % bits * 64 + lane * 4, sizeof four);
  return four >> (line / bits * bits) & 0x01010101u * ((1u << bits) - 1);
}

void ReadQuants(DType type, const PanelFormat& format, const std::byte* planes, int lane, int16_t* quants) {
  const CodeBook book = format.has_book ? CodeBookOf(type) : CodeBook{};
  for (int line = 0; line < 8; ++line) {
    uint32_t four = PlaneBits(planes, format.low_bits, lane, line);
    if (format.high_bits != 0) {
      four |= PlaneBits(planes + 64 * format.low_bits, format.high_bits, lane, line) << format.low_bits;
    }
    for (int i = 0; i < 4; ++i) {
      const auto code = static_cast<uint8_t>(four >> (8 * i));
      quants[line * 4 + i] = static_cast<int16_t>((format.has_book ? book.entries[code] : code) - format.offset);
    }
  }
}

template <DType kType>
float FloatAt(const std::byte* p) {
  if constexpr (kType == DType::kF32) {
    return As<float>(p);
  } else if constexpr (kType == DType::kF16) {
    return HalfToFloat(As<uint16_t>(p));
  } else if constexpr (kType == DType::kBF16) {
    return Bf16ToFloat(As<uint16_t>(p));
  } else if constexpr (kType == DType::kF8E4M3) {
    return E4m3ToFloat(static_cast<uint8_t>(*p)) / kScaleUnitE4M3;
  } else {
    return E5m2ToFloat(static_cast<uint8_t>(*p));
  }
}

}  // namespace

WeightGroup ReadPanelGroup(const PackedMatrix& matrix, const std::byte* panel, int lane, int64_t group) {
  const PanelPieces pieces(matrix.dtype, panel, matrix.columns / kGroup);
  const std::byte* head = pieces.Head(group);
  const std::byte* block = pieces.Block(group);
  const auto part = static_cast<int>(group % pieces.format.block_groups);
  WeightGroup g;
  ReadQuants(matrix.dtype, pieces.format, pieces.Planes(group), lane, g.quants);
  const auto half = [&](const std::byte* p) { return HalfToFloat(As<uint16_t[kPanelRows]>(p)[lane]); };
  switch (matrix.dtype) {
    case DType::kQ4_1:
    case DType::kQ5_1:
      g.scale = half(block);
      g.min_scale = HalfToFloat(As<ScaleMin16>(block).min[lane]);
      break;
    case DType::kQ4_K:
    case DType::kQ5_K: {
      const auto& scales = As<ScalesQ45K>(block);
      g.scale = half(block) * static_cast<float>(scales.scales[part][lane]);
      g.min_scale = -(HalfToFloat(scales.min_scale[lane]) * static_cast<float>(scales.mins[part][lane]));
      break;
    }
    case DType::kQ2_K:
      g.scale = half(block);
      g.min_scale = -HalfToFloat(As<ScalesQ2K>(block).min_scale[lane]);
      for (int h = 0; h < 2; ++h) {
        const uint8_t pair = As<ScalesQ2K>(block).pairs[part][h][lane];
        g.factor[h] = pair & 15;
        g.min[h] = pair >> 4;
      }
      break;
    case DType::kQ3_K:
    case DType::kQ6_K:
      g.scale = half(head);
      for (int h = 0; h < 2; ++h) g.factor[h] = As<FactorsQ36K>(block).factors[part][h][lane];
      break;
    case DType::kMXFP4:
      g.scale = HalfE8m0ToFloat(static_cast<uint8_t>(head[lane]));
      break;
    default:
      g.scale = half(head);
      break;
  }
  return g;
}

void ReadPanelFloats(const PackedMatrix& matrix, const std::byte* panel, int lane, int64_t first, int64_t count,
                     float* out) {
  WithFloatType(matrix.dtype, [&]<DType kType>() {
    constexpr int kColumnBytes = kPanelRows * FloatBytes(kType);
    const std::byte* p =
        panel + FloatHeadBytes(kType, matrix.columns) + first * kColumnBytes + lane * FloatBytes(kType);
    for (int64_t k = 0; k < count; ++k, p += kColumnBytes) out[k] = FloatAt<kType>(p);
  });
}

float ReadPanelScale(const std::byte* panel, int lane, int64_t block) {
  return As<float>(panel + (block * kPanelRows + lane) * int64_t{sizeof(float)});
}

}  // namespace headrace
