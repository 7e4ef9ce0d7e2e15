#include "catalog/catalog.h"

#include <toml++/toml.h>
#include <algorithm>
#include <exception>
#include <filesystem>
#include <limits>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/log.h"
#include "catalog/built_in.h"
#include "catalog/model_name.h"
#include "catalog/sha256.h"

namespace headrace {
namespace {

bool AllOf(std::string_view text, std::string_view more) {
  return std::ranges::all_of(text, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || more.contains(c);
  });
}

// What pip may be given: no option, no URL, no path.
bool IsPinnedPackage(std::string_view text) {
  const size_t equals = text.find("==");
  if (equals == std::string_view::npos || equals == 0 || text.size() > kCatalogPackageBytesMax) return false;
  const std::string_view name = text.substr(0, equals), version = text.substr(equals + 2);
  return AllOf(name, "._-") && name.front() != '-' && name.front() != '.' && !version.empty() && AllOf(version, ".+!");
}

// One entry of the table; keeps where it is, for messages.
class EntryReader {
 public:
  EntryReader(std::string name, const toml::table& table, const std::string& origin)
      : name_(std::move(name)), table_(table), origin_(origin) {}

  Result<CatalogEntry> Read() {
    CatalogEntry entry{.name = name_};
    if (!CheckModelName(name_)) return Bad("the name must be a plain model name");
    HR_RETURN_IF_ERROR(OnlyKeys(table_, {"description", "licence", "file", "bytes", "sha256", "sources"}));
    HR_ASSIGN_OR_RETURN(entry.description, Text(table_, "description"));
    HR_ASSIGN_OR_RETURN(entry.licence, Text(table_, "licence"));
    HR_ASSIGN_OR_RETURN(entry.file, Text(table_, "file"));
    HR_ASSIGN_OR_RETURN(entry.sha256, Text(table_, "sha256"));
    if (!CheckModelName(entry.file)) return Bad("'file' must be a plain file name");
    if (!entry.sha256.empty() && !IsSha256Hex(entry.sha256)) return Bad("'sha256' must be 64 lower-case hex digits");
    if (const toml::node* bytes = table_.get("bytes")) {
      const auto value = bytes->value_exact<int64_t>();
      if (!value || *value <= 0) return Bad("'bytes' must be a whole number above 0");
      entry.bytes = static_cast<uint64_t>(*value);
    }
    const toml::node* sources = table_.get("sources");
    const toml::array* list = sources == nullptr ? nullptr : sources->as_array();
    if (list == nullptr || list->empty() || list->size() > kCatalogSourcesMax)
      return Bad("'sources' must be a list of 1 to " + std::to_string(kCatalogSourcesMax) + " tables");
    for (const toml::node& node : *list) {
      if (!node.is_table()) return Bad("each of 'sources' must be a table such as { url = \"https://...\" }");
      HR_ASSIGN_OR_RETURN(ModelSource source, Source(*node.as_table(), !entry.sha256.empty()));
      entry.sources.push_back(std::move(source));
    }
    return entry;
  }

 private:
  std::unexpected<Error> Bad(const std::string& what) const {
    return Fail(ErrorCode::kInvalidArgument, origin_ + ", [" + EscapeForLog(name_, 60) + "]: " + what, name_);
  }

  Status OnlyKeys(const toml::table& table, std::initializer_list<std::string_view> known) const {
    for (const auto& [key, value] : table) {
      if (std::ranges::find(known, key.str()) != known.end()) continue;
      std::string names;
      for (const std::string_view k : known) names.append(names.empty() ? "" : ", ").append(k);
      return Bad("unknown key '" + EscapeForLog(key.str(), 60) + "'; known are " + names);
    }
    return {};
  }

  Result<std::string> Text(const toml::table& table, std::string_view key) const {
    const toml::node* node = table.get(key);
    if (node == nullptr) return std::string();
    const auto value = node->value_exact<std::string>();
    if (!value || value->size() > kCatalogTextBytesMax)
      return Bad("'" + std::string(key) + "' must be a text of at most " + std::to_string(kCatalogTextBytesMax) +
                 " bytes");
    return *value;
  }

  Result<std::vector<std::string>> Texts(const toml::table& table, std::string_view key) const {
    const toml::node* node = table.get(key);
    const toml::array* list = node == nullptr ? nullptr : node->as_array();
    std::vector<std::string> out;
    for (size_t i = 0; list != nullptr && i < list->size() && i < kCatalogPackagesMax; ++i)
      if (auto text = list->get(i)->value_exact<std::string>()) out.push_back(std::move(*text));
    if (list == nullptr || out.empty() || out.size() != list->size())
      return Bad("'" + std::string(key) + "' must be a list of 1 to " + std::to_string(kCatalogPackagesMax) + " texts");
    return out;
  }

  Result<ModelSource> Source(const toml::table& table, bool hash_known) const {
    if (table.contains("packages")) return Packages(table, hash_known);
    HR_RETURN_IF_ERROR(OnlyKeys(table, {"packages", "members", "url", "hub", "path"}));
    HR_ASSIGN_OR_RETURN(std::string url, Text(table, "url"));
    HR_ASSIGN_OR_RETURN(const std::string hub, Text(table, "hub"));
    HR_ASSIGN_OR_RETURN(std::string path, Text(table, "path"));
    if (table.size() != 1) return Bad("a source has exactly one of packages (with members), url, hub, path");
    if (!url.empty()) {
      if (const Status ok = CheckModelUrl(url, hash_known); !ok) return Bad(ok.error().message);
      return UrlSource{std::move(url)};
    }
    if (!hub.empty()) {
      auto source = ParseHubSource(hub);
      if (!source) return Bad(source.error().message);
      return std::move(*source);
    }
    if (path.empty()) return Bad("a source has one of packages, url, hub, path, and it is not empty");
    return PathSource{std::move(path)};
  }

  Result<ModelSource> Packages(const toml::table& table, bool hash_known) const {
    HR_RETURN_IF_ERROR(OnlyKeys(table, {"packages", "members"}));
    HR_ASSIGN_OR_RETURN(const auto packages, Texts(table, "packages"));
    HR_ASSIGN_OR_RETURN(const auto members, Texts(table, "members"));
    if (packages.size() != members.size()) return Bad("'packages' and 'members' must be equally long");
    // Anybody may upload a package of a name that was given up.
    if (!hash_known) return Bad("a source of packages needs 'sha256'");
    PackageSource source;
    for (size_t i = 0; i < packages.size(); ++i) {
      if (!IsPinnedPackage(packages[i]))
        return Bad("'" + EscapeForLog(packages[i], 60) + "' must be NAME==VERSION of at most " +
                   std::to_string(kCatalogPackageBytesMax) + " bytes");
      source.parts.push_back({packages[i], members[i]});
    }
    return source;
  }

  const std::string name_;
  const toml::table& table_;
  const std::string& origin_;
};

}  // namespace

Catalog Catalog::BuiltIn() {
  auto catalog = Parse(kBuiltInCatalog, "the built-in catalogue");
  CHECK(catalog.has_value());
  return std::move(*catalog);
}

Result<Catalog> Catalog::Load(const std::string& models_folder) {
  Catalog catalog = BuiltIn();
  const std::string path = (std::filesystem::path(models_folder) / "catalog.toml").string();
  const auto text = ReadWholeFile(path, kCatalogBytesMax);
  if (!text && text.error().code == ErrorCode::kNotFound) return catalog;
  if (!text) return Fail(text.error());
  HR_ASSIGN_OR_RETURN(Catalog more, Parse(*text, "catalog.toml"));
  catalog.Override(std::move(more));
  return catalog;
}

Result<Catalog> Catalog::Parse(std::string_view text, const std::string& origin) {
  Catalog catalog;
  try {
    const toml::table root = toml::parse(text);
    if (root.size() > kCatalogEntriesMax)
      return Fail(ErrorCode::kTooLarge, origin + " has more than " + std::to_string(kCatalogEntriesMax) +
                                            " entries; remove those that nobody pulls");
    for (const auto& [key, node] : root) {
      if (!node.is_table())
        return Fail(ErrorCode::kInvalidArgument, origin + ": '" + EscapeForLog(key.str(), 60) + "' must be a table [" +
                                                     EscapeForLog(key.str(), 60) + "]");
      HR_ASSIGN_OR_RETURN(CatalogEntry entry, EntryReader(std::string(key.str()), *node.as_table(), origin).Read());
      catalog.entries_.push_back(std::move(entry));
    }
  } catch (const toml::parse_error& e) {
    return Fail(ErrorCode::kInvalidArgument,
                origin + ", line " + std::to_string(e.source().begin.line) + ": " + std::string(e.description()));
  } catch (const std::exception& e) {
    return Fail(ErrorCode::kInvalidArgument, origin + " cannot be read: " + e.what());
  }
  std::ranges::sort(catalog.entries_, {}, &CatalogEntry::name);
  return catalog;
}

void Catalog::Override(Catalog other) {
  std::erase_if(entries_, [&](const CatalogEntry& e) { return other.Find(e.name) != nullptr; });
  for (CatalogEntry& entry : other.entries_) entries_.push_back(std::move(entry));
  std::ranges::sort(entries_, {}, &CatalogEntry::name);
}

const CatalogEntry* Catalog::Find(std::string_view name) const {
  const auto at =
      std::ranges::lower_bound(entries_, name, {}, [](const CatalogEntry& e) -> std::string_view { return e.name; });
  return at != entries_.end() && at->name == name ? &*at : nullptr;
}

const CatalogEntry* Catalog::FindByFile(std::string_view file) const {
  const auto at = std::ranges::find(entries_, file, [](const CatalogEntry& e) -> std::string_view { return e.file; });
  return at == entries_.end() ? nullptr : &*at;
}

std::vector<std::string> Catalog::Names() const {
  std::vector<std::string> names;
  for (const CatalogEntry& entry : entries_) names.push_back(entry.name);
  return names;
}

Result<HubSource> ParseHubSource(std::string_view text) {
  const auto bad = [&](const std::string& why) {
    return Fail(ErrorCode::kInvalidArgument,
                "'hf:" + EscapeForLog(text, 80) +
                    "' must be hf:OWNER/REPO or hf:OWNER/REPO:FILE or hf:OWNER/REPO:QUANT: " + why,
                "model");
  };
  const size_t colon = text.find(':');
  const std::string_view repository = text.substr(0, colon);
  const std::string_view file = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  const size_t slash = repository.find('/');
  if (slash == std::string_view::npos) return bad("there is no '/'");
  if (!CheckModelName(repository.substr(0, slash)) || !CheckModelName(repository.substr(slash + 1)))
    return bad("owner and repository are plain names");
  if (colon != std::string_view::npos && file.empty()) return bad("nothing stands after the last ':'");
  for (std::string_view rest = file; !rest.empty();) {
    const size_t end = std::min(rest.find('/'), rest.size());
    if (!CheckModelName(rest.substr(0, end))) return bad("the file's path has a part that is no plain name");
    if (end + 1 == rest.size()) return bad("the file's path ends in '/'");
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return HubSource{std::string(repository), std::string(file)};
}

Status CheckModelUrl(std::string_view url, bool hash_known) {
  if (url.starts_with("https://")) return {};
  if (!url.starts_with("http://"))
    return Fail(ErrorCode::kInvalidArgument, "'" + EscapeForLog(url, 80) + "' must begin with https://", "model");
  const std::string_view rest = url.substr(7);
  const std::string_view authority = rest.substr(0, rest.find_first_of("/?#"));
  const std::string_view host = authority.starts_with('[') ? authority.substr(0, authority.find(']') + 1)
                                                           : authority.substr(0, authority.rfind(':'));
  const bool local = host == "127.0.0.1" || host == "localhost" || host == "[::1]";
  if (hash_known || local) return {};
  return Fail(ErrorCode::kInvalidArgument,
              "'" + EscapeForLog(url, 80) + "' is not encrypted: use https://, or give the file's hash with --sha256",
              "model");
}

}  // namespace headrace
