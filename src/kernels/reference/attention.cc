// Scalar truth of attention.
#include "kernels/reference/attention.h"

#include <cmath>
#include <cstring>

#include "kernels/canonical.h"
#include "kernels/key_spread.h"

namespace headrace {
namespace {

float LargestOf(const float* x, int n) {
  float largest = 0;
  for (int i = 0; i < n; ++i) largest = std::fabs(x[i]) > largest ? std::fabs(x[i]) : largest;
  return largest;
}

float LengthOf(const float* x, int n) {
  float lanes[16] = {};
  for (int i = 0; i < n; ++i) lanes[i % 16] = FusedMulAdd(x[i], x[i], lanes[i % 16]);
  return std::sqrt(TreeSum16(lanes));
}

// key_spread.h, in place.
void Spread(float* x, int n) {
  for (int d = 0; d < n; ++d) x[d] = x[d] * kSpreadSigns.at[d];
  for (int h = 1; h < SpreadBlock(n); h *= 2) {
    for (int d = 0; d < n; ++d) {
      if ((d & h) != 0) continue;
      const float a = x[d], b = x[d + h];
      x[d] = a + b;
      x[d + h] = a - b;
    }
  }
}

// A vector as integers; see attention.h.
struct Quantised {
  int16_t quants[kHeadDimMax];
  float scale;

  Quantised(const float* x, int n, float scale_in) : scale(scale_in) {
    const float inverse = scale >= kSmallestScaled ? 1.0f / scale : 0.0f;
    for (int i = 0; i < n; ++i) quants[i] = static_cast<int16_t>(RoundToEven(x[i] * inverse));
  }
};

// One page of K or V: what lies at an element pair's first or second place of a lane.
struct StoredPage {
  KvType type;
  const std::byte* data;
  int lanes;  // 64 tokens for K, head_dim for V
  int head_dim;

  int Quant(int place, int lane) const {
    const int at = (place / 2 * lanes + lane) * 2 + place % 2;
    if (type == KvType::kInt8) return static_cast<int8_t>(data[at]);
    int16_t quant;
    std::memcpy(&quant, data + 2 * at, sizeof quant);
    return quant;
  }
  float Scale(int token) const {
    float scale;
    const int64_t at = int64_t{KvElementBytes(type)} * kPageTokens * head_dim + int64_t{token} * int64_t{sizeof scale};
    std::memcpy(&scale, data + at, sizeof scale);
    return scale;
  }
};

void StoreVector(const Quantised& q, const KvSlot& op, bool is_key, std::byte* page) {
  for (int d = 0; d < op.head_dim; ++d) {
    const int at =
        is_key ? (d / 2 * kPageTokens + op.slot) * 2 + d % 2 : (op.slot / 2 * op.head_dim + d) * 2 + op.slot % 2;
    if (op.type == KvType::kInt8) {
      page[at] = static_cast<std::byte>(q.quants[d]);
    } else {
      std::memcpy(page + 2 * at, &q.quants[d], sizeof(int16_t));
    }
  }
  const int64_t scales = int64_t{KvElementBytes(op.type)} * kPageTokens * op.head_dim;
  std::memcpy(page + scales + int64_t{op.slot} * int64_t{sizeof(float)}, &q.scale, sizeof q.scale);
}

float Score(const Quantised& q, const StoredPage& k, int t) {
  int32_t sum = 0;
  for (int d = 0; d < k.head_dim; ++d) sum += q.quants[d] * k.Quant(d, t);
  return static_cast<float>(sum) * (q.scale * k.Scale(t));
}

// What one page gives one query head: record[0] = m, [1] = l, [2] = W.scale, [kPartialHead + d] = float(dot_d).
void AttendPage(const Quantised& q, const StoredPage& k, const StoredPage& v, int begin, int end, float* record) {
  float score[kPageTokens], weight[kPageTokens] = {}, lanes[16] = {}, weights[16] = {}, m = 0;
  for (int t = begin; t < end; ++t) {
    score[t] = Score(q, k, t);
    m = t == begin || score[t] > m ? score[t] : m;
  }
  for (int t = 0; t < kPageTokens; ++t) {
    const bool seen = t >= begin && t < end;
    const float p = seen ? CanonicalExp(score[t] - m) : 0.0f;
    lanes[t % 16] = lanes[t % 16] + p;
    if (seen) weight[t] = p * v.Scale(t);
    weights[t % 16] = weights[t % 16] + weight[t];
  }
  const Quantised w(weight, kPageTokens, TreeSum16(weights) / kLength);
  record[0] = m;
  record[1] = TreeSum16(lanes);
  record[2] = w.scale;
  for (int d = 0; d < v.head_dim; ++d) {
    int32_t dot = 0;
    for (int t = begin; t < end; ++t) dot += w.quants[t] * v.Quant(t, d);
    record[kPartialHead + d] = static_cast<float>(dot);
  }
}

// Merges a page's record into a state: state[0] = m, state[1] = l, state[kPartialHead + d] = o.
void MergePage(const float* record, int head_dim, bool first, float* state) {
  const float *dots = record + kPartialHead, scale = record[2];
  float* o = state + kPartialHead;
  if (first) {
    state[0] = record[0];
    state[1] = record[1];
    for (int d = 0; d < head_dim; ++d) o[d] = dots[d] * scale;
    return;
  }
  const float top = record[0] > state[0] ? record[0] : state[0];
  const float a = CanonicalExp(state[0] - top), b = CanonicalExp(record[0] - top);
  state[0] = top;
  state[1] = FusedMulAdd(state[1], a, record[1] * b);
  for (int d = 0; d < head_dim; ++d) o[d] = FusedMulAdd(o[d], a, dots[d] * (scale * b));
}

void Finish(const float* state, int head_dim, float* out) {
  for (int d = 0; d < head_dim; ++d) out[d] = state[kPartialHead + d] / state[1];
}

void AttendQuery(const Attention& op, int row, int head) {
  const int64_t position = op.first_position + row, element = int64_t{head} * op.head_dim;
  const float* q = op.queries + row * op.query_stride + element;
  float scaled[kHeadDimMax], record[kPartialHead + kHeadDimMax], state[kPartialHead + kHeadDimMax];
  const bool is_int8 = op.kv_type == KvType::kInt8;
  const float scale = op.softmax_scale / static_cast<float>(is_int8 ? SpreadBlock(op.head_dim) : 1);
  for (int d = 0; d < op.head_dim; ++d) scaled[d] = q[d] * scale;
  if (is_int8) Spread(scaled, op.head_dim);
  const Quantised query(scaled, op.head_dim, LengthOf(scaled, op.head_dim) / kLength);
  const int64_t start = op.window > 0 && position + 1 > op.window ? position + 1 - op.window : 0;
  const bool part = op.partials != nullptr;
  const int64_t first_page = part && op.first_page * kPageTokens > start ? op.first_page : start / kPageTokens;
  for (int64_t page = first_page; page * kPageTokens <= position && (!part || page < op.end_page); ++page) {
    const int64_t first_token = page * kPageTokens, at = op.block_table[page] * op.block_stride;
    const int64_t left = position + 1 - first_token;
    float* to = part ? op.partials + (page * op.group_heads + head) * PartialFloats(op.head_dim) : record;
    AttendPage(query, {op.kv_type, op.k_pages + at, kPageTokens, op.head_dim},
               {op.kv_type, op.v_pages + at, op.head_dim, op.head_dim},
               static_cast<int>(start > first_token ? start - first_token : 0),
               static_cast<int>(left < kPageTokens ? left : kPageTokens), to);
    if (!part) MergePage(record, op.head_dim, page == first_page, state);
  }
  if (!part) Finish(state, op.head_dim, op.out + row * op.out_stride + element);
}

}  // namespace

void ReferenceAttend(const Attention& op) {
  for (int r = 0; r < op.rows; ++r) {
    for (int h = 0; h < op.group_heads; ++h) AttendQuery(op, r, h);
  }
}

void ReferenceMergeAttention(const AttentionMerge& op) {
  float state[kPartialHead + kHeadDimMax];
  for (int h = 0; h < op.group_heads; ++h) {
    for (int64_t page = op.first_page; page < op.end_page; ++page) {
      MergePage(op.partials + (page * op.group_heads + h) * PartialFloats(op.head_dim), op.head_dim,
                page == op.first_page, state);
    }
    Finish(state, op.head_dim, op.out + int64_t{h} * op.head_dim);
  }
}

void ReferenceRotate(const Rotation& op) { RotatePairs(op, 0); }

void ReferenceStoreKv(const KvSlot& op) {
  const bool is_int8 = op.type == KvType::kInt8;
  const int n = op.head_dim;
  float k[kHeadDimMax];
  std::memcpy(k, op.k, static_cast<size_t>(n) * sizeof(float));
  if (is_int8) Spread(k, n);
  const float k_scale = is_int8 ? LargestOf(k, n) / 127.0f : LengthOf(k, n) / kLength;
  const float v_scale = LargestOf(op.v, n) / (is_int8 ? 127.0f : kLength);
  StoreVector(Quantised(k, n, k_scale), op, true, op.k_page);
  StoreVector(Quantised(op.v, n, v_scale), op, false, op.v_page);
}

}  // namespace headrace
