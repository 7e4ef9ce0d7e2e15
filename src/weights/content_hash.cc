// ModelFile::ContentHash and FullHash. Every part is preceded by its length, so that no two models hash the same bytes.
#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "weights/limits.h"
#include "weights/model_file.h"

namespace headrace {
namespace {

constexpr uint64_t kIdentitySampleBytesMax = 16 * kMiB;
// Of each tensor at most one page, at least a cache line or two: kTensorsMax tensors share the maximum above.
constexpr uint64_t kTensorSampleBytesMax = 4096;
static_assert(kIdentitySampleBytesMax / kTensorsMax >= 128);

class Sha256 {
 public:
  Sha256() : state_(EVP_MD_CTX_new()) {
    CHECK(state_ != nullptr);
    CHECK_EQ(EVP_DigestInit_ex(state_, EVP_sha256(), nullptr), 1);
  }
  ~Sha256() { EVP_MD_CTX_free(state_); }
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Add(std::span<const std::byte> bytes) { CHECK_EQ(EVP_DigestUpdate(state_, bytes.data(), bytes.size()), 1); }
  void AddNumber(uint64_t number) {
    static_assert(std::endian::native == std::endian::little);
    Add(std::as_bytes(std::span(&number, 1)));
  }
  void AddText(std::string_view text) {
    AddNumber(text.size());
    Add(std::as_bytes(std::span(text)));
  }
  // Bytes [begin, begin + count) of `source`.
  Status AddRange(const ByteSource& source, uint64_t begin, uint64_t count) {
    AddNumber(count);
    while (count > 0) {
      buffer_.resize(std::min<uint64_t>(count, kMiB));
      HR_RETURN_IF_ERROR(source.Read(begin, buffer_));
      Add(buffer_);
      begin += buffer_.size();
      count -= buffer_.size();
    }
    return {};
  }
  std::string Hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int length = 0;
    CHECK_EQ(EVP_DigestFinal_ex(state_, digest, &length), 1);
    std::string hex;
    for (unsigned int i = 0; i < length; ++i) hex += fmt::format("{:02x}", digest[i]);
    return hex;
  }

 private:
  EVP_MD_CTX* state_;
  std::vector<std::byte> buffer_;
};

}  // namespace

Result<std::string> ModelFile::ContentHash() const {
  Sha256 hash;
  hash.AddText("headrace weights, sampled, 1");
  hash.AddNumber(sources_.size());
  for (size_t i = 0; i < sources_.size(); ++i) {
    hash.AddNumber(sources_[i]->size());
    HR_RETURN_IF_ERROR(hash.AddRange(*sources_[i], 0, header_bytes_[i]));
  }
  for (const std::string& text : texts_) hash.AddText(text);
  std::vector<std::byte> sample;
  const uint64_t share = kIdentitySampleBytesMax / std::max<uint64_t>(tensors_.size(), 1);
  for (const TensorInfo& tensor : tensors_) {
    const uint64_t count = std::min({share, kTensorSampleBytesMax, tensor.bytes});
    sample.resize(count);
    HR_RETURN_IF_ERROR(Read(tensor, (tensor.bytes - count) / 2, sample));
    hash.AddNumber(count);
    hash.Add(sample);
  }
  return hash.Hex();
}

Result<std::string> ModelFile::FullHash() const {
  Sha256 hash;
  hash.AddText("headrace weights, whole, 1");
  hash.AddNumber(sources_.size());
  for (const auto& source : sources_) HR_RETURN_IF_ERROR(hash.AddRange(*source, 0, source->size()));
  for (const std::string& text : texts_) hash.AddText(text);
  return hash.Hex();
}

}  // namespace headrace
