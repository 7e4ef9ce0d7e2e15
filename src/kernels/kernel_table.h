// One table of functions per instruction set, all equal to the reference to the bit. Chosen once at start; forced by
// HEADRACE_ISA = reference | avx2 | avxvnni | avx512 | amx | neon. Functions are pure and thread-safe; pointers are not
// checked.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/attention.h"
#include "kernels/matmul.h"
#include "kernels/sampling.h"

namespace headrace {

struct KernelTable {
  const char* name;
  // Quantises row `row` of `activations.values` into its tile and marks its wide groups. After all rows:
  // QuantizeWideGroups of every chunk, then products.
  void (*quantize_row)(const Activations& activations, int64_t row);
  // Quantises what the first plane of (row, group) leaves over, as entry `entry` of the second planes.
  void (*quantize_rest)(const Activations& activations, int64_t row, int64_t group, int64_t entry);
  // Panels [panel_begin, panel_end) of the product, all activation rows.
  void (*matmul)(const MatMul& op, int64_t panel_begin, int64_t panel_end);
  // Panels of a GateUp in one pass over the activations; false where this table has no such pass for the operands, and
  // nothing was done. Null: never. Called by MultiplyGateUp.
  bool (*gate_up)(const GateUp& op, int64_t panel_begin, int64_t panel_end);
  // out = (x * 1 / sqrt(mean(x^2) + eps)) * weight; the squares by 16 lanes (lane = i % 16) and the tree.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* out);
  // out = silu(gate) * up.
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);
  // out = gelu(gate) * up, by the tanh formula.
  void (*gelu_mul)(const float* gate, const float* up, int64_t n, float* out);
  void (*attend)(const Attention& op);
  void (*merge_attention)(const AttentionMerge& op);
  void (*rotate)(const Rotation& op);
  // Quantises one token's K and V of one head into its page slots.
  void (*store_kv)(const KvSlot& op);
  // The largest element; n > 0.
  float (*row_max)(const float* x, int64_t n);
  // out = exp((x - max) * inverse_temperature).
  void (*exp_row)(const float* x, int64_t n, float max, float inverse_temperature, float* out);
  const SamplingKernels* sampling;
};

const KernelTable& ReferenceKernels();
#if defined(__x86_64__)
const KernelTable& Avx2Kernels();
const KernelTable& AvxVnniKernels();
const KernelTable& Avx512Kernels();
const KernelTable& AmxKernels();
#elif defined(__aarch64__)
const KernelTable& NeonKernels();
#endif

// The tables that this CPU can run, slowest (the reference) first.
std::vector<const KernelTable*> UsableKernels();
// `forced` is "" for the best one. Unknown or unusable names are an error that lists what is usable.
Result<const KernelTable*> ChooseKernels(std::string_view forced);

// Lists and quantises the wide groups of one chunk of rows.
void QuantizeWideGroups(const KernelTable& table, const Activations& activations, int64_t chunk);

enum class GateFunction : uint8_t { kSilu, kGelu };

// Panels [panel_begin, panel_end) of a GateUp, all activation rows; with kGelu its silu is gelu.
void MultiplyGateUp(const KernelTable& table, const GateUp& op, GateFunction function, int64_t panel_begin,
                    int64_t panel_end);

// Bytes of the packed form of a [rows, columns] matrix. REQUIRES: computable dtype, columns % its block == 0 and,
// for quantised types, columns % 32 == 0.
int64_t PackedBytes(DType dtype, int64_t rows, int64_t columns);
// Describes a matrix packed at `data`.
PackedMatrix DescribePacked(DType dtype, int64_t rows, int64_t columns, const std::byte* data);
// Packs up to 16 consecutive rows (as the file has them, row_bytes apart) into panel `panel` at `data`. scales: of
// 8-bit floats, [row_count][ScaleBlocks(columns)]; null: 1.
void PackPanel(DType dtype, int64_t columns, const std::byte* rows, int64_t row_count, int64_t panel, std::byte* data,
               const float* scales = nullptr);
// One row of a packed matrix as floats (embedding look-up).
void UnpackRow(const PackedMatrix& matrix, int64_t row, float* out);

}  // namespace headrace
