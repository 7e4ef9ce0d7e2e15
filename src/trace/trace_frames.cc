#include "trace/trace_frames.h"

#include <array>
#include <bit>

#include "base/check.h"
#include "trace/limits.h"

namespace headrace {
namespace {

constexpr std::array<uint32_t, 256> kCrcTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0);
    table[i] = crc;
  }
  return table;
}();

void AppendFixed(std::string* out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

uint64_t ReadFixed(std::string_view bytes, int count) {
  uint64_t value = 0;
  for (int i = 0; i < count; ++i)
    value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[static_cast<size_t>(i)])) << (8 * i);
  return value;
}

void AppendVarint(std::string* out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

// A cursor that remembers whether anything was missing, so that fields are read without a check each.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : bytes_(bytes) {}

  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint64_t byte = Fixed(1);
      value |= (byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    good_ = false;
    return 0;
  }
  int64_t Signed() {
    const uint64_t value = Varint();
    return static_cast<int64_t>((value >> 1) ^ (~(value & 1) + 1));
  }
  float Float() { return std::bit_cast<float>(static_cast<uint32_t>(Fixed(4))); }
  uint64_t Fixed(int count) {
    if (bytes_.size() < static_cast<size_t>(count)) {
      good_ = false;
      bytes_ = {};
      return 0;
    }
    const uint64_t value = ReadFixed(bytes_, count);
    bytes_.remove_prefix(static_cast<size_t>(count));
    return value;
  }
  std::string_view rest() const { return bytes_; }
  bool good() const { return good_; }

 private:
  std::string_view bytes_;
  bool good_ = true;
};

void AppendSigned(std::string* out, int64_t value) {
  AppendVarint(out, (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63));
}

void AppendFloat(std::string* out, float value) { AppendFixed(out, std::bit_cast<uint32_t>(value), 4); }

}  // namespace

uint32_t Crc32c(std::string_view bytes, uint32_t crc) {
  crc = ~crc;
  for (const char c : bytes) crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<uint8_t>(c)) & 0xFF];
  return ~crc;
}

void AppendU32(std::string* out, uint32_t value) { AppendFixed(out, value, 4); }
uint32_t ReadU32(std::string_view bytes) { return static_cast<uint32_t>(ReadFixed(bytes, 4)); }

std::string EncodeTraceHeader() {
  std::string header(kTraceMagic);
  AppendU32(&header, kTraceVersion);
  AppendU32(&header, Crc32c(header));
  return header;
}

std::string EncodeFrameHeader(FrameKind kind, std::string_view payload) {
  CHECK_LE(payload.size(), kTraceFrameBytesMax);
  std::string header(kFrameMark);
  AppendU32(&header, static_cast<uint32_t>(kind));
  AppendU32(&header, static_cast<uint32_t>(payload.size()));
  AppendU32(&header, Crc32c(payload, Crc32c(std::string_view(header).substr(kFrameMark.size()))));
  return header;
}

bool DecodeFrameHeader(std::string_view bytes, FrameHeader* header) {
  if (!bytes.starts_with(kFrameMark) || ReadU32(bytes.substr(4)) > 0xFF ||
      ReadU32(bytes.substr(8)) > kTraceFrameBytesMax)
    return false;
  *header = {static_cast<FrameKind>(bytes[4]), ReadU32(bytes.substr(8)), ReadU32(bytes.substr(12)), bytes.substr(4, 8)};
  return true;
}

void EncodeRequest(const RecordedRequest& r, std::string* out) {
  std::string fields;
  AppendSigned(&fields, r.arrival_us);
  for (uint64_t value : {r.id, r.previous}) AppendVarint(&fields, value);
  AppendFixed(&fields, r.tenant, 8);
  for (int64_t value : {int64_t{r.band}, r.prompt_tokens, r.output_tokens, r.cached_tokens, r.started_us,
                        r.first_token_us, r.end_us, static_cast<int64_t>(r.end)})
    AppendSigned(&fields, value);
  for (float value : {r.sampling.temperature, r.sampling.top_p, r.sampling.min_p}) AppendFloat(&fields, value);
  AppendSigned(&fields, r.sampling.top_k);
  AppendVarint(&fields, r.sampling.seed);
  AppendSigned(&fields, r.sampling.max_tokens);
  AppendSigned(&fields, r.block_tokens);
  AppendVarint(&fields, r.blocks.size());
  for (const RecordedBlock& block : r.blocks) {
    AppendFixed(&fields, block.high, 8);
    AppendFixed(&fields, block.low, 8);
  }
  AppendVarint(out, fields.size());
  *out += fields;
}

Status DecodeRequest(std::string_view* payload, RecordedRequest* r) {
  const Error damaged{ErrorCode::kCorruptData, "a request's fields do not fit its length", {}, 0};
  Fields head(*payload);
  const uint64_t bytes = head.Varint();
  if (!head.good() || bytes > head.rest().size()) return Fail(damaged);
  Fields f(head.rest().substr(0, bytes));
  payload->remove_prefix(payload->size() - head.rest().size() + bytes);
  *r = {.blocks = std::move(r->blocks)};
  r->blocks.clear();
  r->arrival_us = f.Signed();
  r->id = f.Varint();
  r->previous = f.Varint();
  r->tenant = f.Fixed(8);
  const int64_t band = f.Signed();
  r->prompt_tokens = f.Signed();
  r->output_tokens = f.Signed();
  r->cached_tokens = f.Signed();
  r->started_us = f.Signed();
  r->first_token_us = f.Signed();
  r->end_us = f.Signed();
  const int64_t end = f.Signed();
  r->sampling = {.temperature = f.Float(), .top_p = f.Float(), .min_p = f.Float()};
  const int64_t top_k = f.Signed();
  r->sampling.seed = f.Varint();
  r->sampling.max_tokens = f.Signed();
  const int64_t block_tokens = f.Signed();
  const uint64_t blocks = f.Varint();
  if (!f.good() || blocks > f.rest().size() / 16 || band < 0 || band > 3 || block_tokens < 1 ||
      block_tokens > INT32_MAX || top_k < INT32_MIN || top_k > INT32_MAX)
    return Fail(damaged);
  r->band = static_cast<int32_t>(band);
  r->sampling.top_k = static_cast<int32_t>(top_k);
  r->block_tokens = static_cast<int32_t>(block_tokens);
  // An end that a later version knows.
  r->end = end < 0 || end > static_cast<int64_t>(RecordedEnd::kError) ? RecordedEnd::kUnknown
                                                                      : static_cast<RecordedEnd>(end);
  for (uint64_t i = 0; i < blocks; ++i) {
    const uint64_t high = f.Fixed(8);
    r->blocks.push_back({high, f.Fixed(8)});
  }
  return {};
}

}  // namespace headrace
