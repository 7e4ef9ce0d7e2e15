#include "weights/sniff.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/log.h"

namespace headrace {
namespace {

using std::string_view_literals::operator""sv;

constexpr std::string_view kConvertHint =
    "convert the model to safetensors or GGUF first, with a tool that you trust, in a place where running code is safe";

struct Signature {
  std::string_view bytes;
  std::string_view what;
  std::string_view advice;
  ErrorCode code;
};

// First bytes of what people take for a model file.
constexpr Signature kSignatures[] = {
    {"PK\x03\x04"sv, "a ZIP archive, as PyTorch saves pickled weights", kConvertHint, ErrorCode::kUnsupported},
    {"PK\x05\x06"sv, "a ZIP archive", kConvertHint, ErrorCode::kUnsupported},
    {"\x1f\x8b"sv, "compressed with gzip", "unpack it first", ErrorCode::kUnsupported},
    {"\x28\xb5\x2f\xfd"sv, "compressed with zstd", "unpack it first", ErrorCode::kUnsupported},
    {"\x89HDF"sv, "an HDF5 file", kConvertHint, ErrorCode::kUnsupported},
    {"lmgg"sv, "a GGML file from before GGUF", "convert the model to GGUF", ErrorCode::kUnsupported},
    {"fmgg"sv, "a GGMF file from before GGUF", "convert the model to GGUF", ErrorCode::kUnsupported},
    {"tjgg"sv, "a GGJT file from before GGUF", "convert the model to GGUF", ErrorCode::kUnsupported},
    {"version https://git-lfs"sv, "a Git LFS pointer, not the weights", "fetch the file itself with `git lfs pull`",
     ErrorCode::kCorruptData},
    {"<!DOCTYPE"sv, "a web page", "download the file itself", ErrorCode::kCorruptData},
    {"<!doctype"sv, "a web page", "download the file itself", ErrorCode::kCorruptData},
    {"<html"sv, "a web page", "download the file itself", ErrorCode::kCorruptData},
    // Pickle protocol 0 is text: a mark and a container, or a global name.
    {"(dp"sv, "a Python pickle", kConvertHint, ErrorCode::kUnsupported},
    {"(lp"sv, "a Python pickle", kConvertHint, ErrorCode::kUnsupported},
    {"ccollections\n"sv, "a Python pickle", kConvertHint, ErrorCode::kUnsupported},
    {"ctorch"sv, "a Python pickle", kConvertHint, ErrorCode::kUnsupported},
    {"cnumpy"sv, "a Python pickle", kConvertHint, ErrorCode::kUnsupported},
    {"c__builtin__\n"sv, "a Python pickle", kConvertHint, ErrorCode::kUnsupported},
    {"cbuiltins\n"sv, "a Python pickle", kConvertHint, ErrorCode::kUnsupported},
    {"cos\n"sv, "a Python pickle", kConvertHint, ErrorCode::kUnsupported},
    {"cposix\n"sv, "a Python pickle", kConvertHint, ErrorCode::kUnsupported},
    {"csubprocess\n"sv, "a Python pickle", kConvertHint, ErrorCode::kUnsupported},
};

// A binary pickle begins with 0x80 and its protocol, 2 to 5. So does a safetensors file whose header has 0x280 bytes,
// but its length has six zero bytes more and then a brace.
bool IsBinaryPickle(std::string_view head) {
  if (head.size() < 2 || head[0] != '\x80' || head[1] < 2 || head[1] > 5) return false;
  return head.size() < 9 || head.substr(2, 6) != "\0\0\0\0\0\0"sv || head[8] != '{';
}

Error Refusal(const ByteSource& source, const Signature& found) {
  return Error{found.code, fmt::format("{} is {}: {}", source.name(), found.what, found.advice), {}, 0};
}

constexpr size_t kTarMagicOffset = 257;

bool IsTar(std::string_view head) {
  return head.size() >= kTarMagicOffset + 5 && head.substr(kTarMagicOffset, 5) == "ustar";
}

}  // namespace

Result<WeightsFormat> SniffWeights(const ByteSource& source) {
  std::array<char, 512> buffer;
  const size_t count = std::min<uint64_t>(buffer.size(), source.size());
  HR_RETURN_IF_ERROR(source.Read(0, std::as_writable_bytes(std::span(buffer.data(), count))));
  const std::string_view head(buffer.data(), count);
  if (head.empty()) {
    return Fail(ErrorCode::kCorruptData, fmt::format("{} is empty; is the download complete?", source.name()));
  }
  if (head.starts_with("GGUF")) return WeightsFormat::kGguf;
  if (IsBinaryPickle(head)) {
    return Fail(Refusal(
        source, {{}, "a Python pickle, which can run code when it is loaded", kConvertHint, ErrorCode::kUnsupported}));
  }
  for (const Signature& signature : kSignatures) {
    if (head.starts_with(signature.bytes)) return Fail(Refusal(source, signature));
  }
  if (IsTar(head)) return Fail(Refusal(source, {{}, "a tar archive", kConvertHint, ErrorCode::kUnsupported}));
  // safetensors has no magic: a 64-bit header length, then JSON. A damaged one is still reported as such.
  if ((head.size() > 8 && head[8] == '{') || source.name().ends_with(".safetensors")) {
    return WeightsFormat::kSafetensors;
  }
  return Fail(ErrorCode::kCorruptData, fmt::format("{} is neither GGUF nor safetensors; it begins with \"{}\"",
                                                   source.name(), EscapeForLog(head.substr(0, 8))));
}

}  // namespace headrace
