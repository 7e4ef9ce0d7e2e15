// The rate of AMX's 8-bit dot products out of tile registers.
#include "kernels/probe.h"

#include <immintrin.h>

namespace headrace {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

}  // namespace

int64_t AmxTileDots(int64_t rounds, int32_t* sink) {
  constexpr int kRows = 16, kRowBytes = 64, kProducts = 4;
  TileConfig config;
  for (int t = 0; t < 8; ++t) {
    config.rows[t] = kRows;
    config.row_bytes[t] = kRowBytes;
  }
  alignas(64) int8_t ones[kRows * kRowBytes];
  for (int8_t& x : ones) x = 1;
  alignas(64) int32_t out[kRows * kRowBytes / 4];
  _tile_loadconfig(&config);
  _tile_loadd(4, ones, kRowBytes);
  _tile_loadd(5, ones, kRowBytes);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t r = 0; r < rounds; ++r) {
    _tile_dpbsud(0, 4, 5);
    _tile_dpbsud(1, 4, 5);
    _tile_dpbsud(2, 4, 5);
    _tile_dpbsud(3, 4, 5);
  }
  _tile_stored(0, out, kRowBytes);
  _tile_release();
  *sink = out[0];
  return rounds * kProducts * 2 * kRows * (kRowBytes / 4) * kRowBytes;
}

}  // namespace headrace
