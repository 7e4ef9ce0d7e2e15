#include "catalog/hub.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/log.h"
#include "catalog/model_name.h"
#include "catalog/sha256.h"
#include "json/json.h"
#include "json/json_fields.h"

namespace headrace {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

std::string Lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
  return out;
}

std::string_view LastComponent(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// Folder and model name: equal for the parts of one model.
std::string ModelOf(const std::string& path) {
  const std::string_view last = LastComponent(path);
  return path.substr(0, path.size() - last.size()) + std::string(ModelNameOfFile(last));
}

bool IsAlnum(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

// `quant` as a word of its own: Q4_K must not find Q4_K_M.
bool NamesQuant(std::string_view path, std::string_view quant) {
  const std::string name = Lower(ModelNameOfFile(LastComponent(path))), word = Lower(quant);
  for (size_t at = name.find(word); at != std::string::npos; at = name.find(word, at + 1)) {
    const bool starts = at == 0 || !(IsAlnum(name[at - 1]) || name[at - 1] == '_');
    const size_t end = at + word.size();
    if (starts && (end == name.size() || !(IsAlnum(name[end]) || name[end] == '_'))) return true;
  }
  return false;
}

Result<std::string> FetchText(const std::string& url, const HubOptions& options, const PullPorts& ports,
                              const std::string& what) {
  std::string body;
  const auto result =
      ports.fetch({.url = url, .headers = options.Headers()},
                  [&](std::span<const std::byte> bytes) -> Status {
                    if (ports.cancelled()) return Fail(PullCancelled());
                    if (body.size() + bytes.size() > kHubListingBytesMax)
                      return Fail(ErrorCode::kTooLarge,
                                  "the hub's list of files of " + what + " is longer than " +
                                      std::to_string(kHubListingBytesMax) + " bytes: pull the file by its URL",
                                  "model");
                    body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
                    return {};
                  },
                  {});
  if (!result) return Fail(result.error());
  switch (result->status) {
    case 200:
      return body;
    case 401:
    case 403:
      return Fail(ErrorCode::kPermissionDenied,
                  "the hub wants a login for " + what +
                      ", or has no such repository: check the name, accept its licence on the hub's page, put a token "
                      "into HF_TOKEN",
                  "model");
    case 404:
      return Fail(ErrorCode::kNotFound, "the hub has no repository " + what, "model");
    default:
      return Fail(ErrorCode::kUnavailable, "the hub answers " + std::to_string(result->status) + " for " + what,
                  "model");
  }
}

Result<HubFile> ReadFile(const Json& value, const std::string& place) {
  HubFile file;
  HR_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(value, place));
  HR_ASSIGN_OR_RETURN(const auto type, fields.String("type", 32));
  HR_ASSIGN_OR_RETURN(const auto path, fields.String("path", kHubPathBytesMax));
  HR_ASSIGN_OR_RETURN(const auto size, fields.Integer("size", 0, INT64_MAX));
  if (type.value_or("") != "file" || !path) return file;
  file.path = *path;
  file.bytes = static_cast<uint64_t>(size.value_or(0));
  HR_ASSIGN_OR_RETURN(const Json* lfs, fields.Object("lfs"));
  if (lfs == nullptr) return file;
  HR_ASSIGN_OR_RETURN(JsonFields large, JsonFields::Of(*lfs, place + ".lfs"));
  HR_ASSIGN_OR_RETURN(const auto oid, large.String("oid", 128));
  if (oid && IsSha256Hex(*oid)) file.sha256 = *oid;
  return file;
}

}  // namespace

HubOptions HubOptions::FromEnvironment() {
  HubOptions options{.endpoint = Environment("HEADRACE_HF_ENDPOINT"), .token = Environment("HF_TOKEN")};
  if (options.endpoint.empty()) options.endpoint = "https://huggingface.co";
  while (options.endpoint.ends_with('/')) options.endpoint.pop_back();
  return options;
}

HttpHeaders HubOptions::Headers() const {
  if (token.empty()) return {};
  return {{"Authorization", "Bearer " + token}};
}

Result<std::vector<HubFile>> ResolveHubSource(const HubSource& source, const HubOptions& options,
                                              const PullPorts& ports) {
  HR_RETURN_IF_ERROR(CheckModelUrl(options.endpoint + "/", false));
  const std::string listing = options.endpoint + "/api/models/" + source.repository + "/tree/main?recursive=true";
  HR_ASSIGN_OR_RETURN(const std::string text, FetchText(listing, options, ports, source.repository));
  const auto json = ParseJson(text, {.bytes_max = kHubListingBytesMax, .depth_max = 16});
  if (!json || !json->is_array())
    return Fail(ErrorCode::kCorruptData,
                "the hub's list of files of " + source.repository + " is not what it should be", "model");
  if (json->size() > kHubFilesMax)
    return Fail(ErrorCode::kTooLarge,
                "the hub lists more than " + std::to_string(kHubFilesMax) + " files for " + source.repository +
                    ": pull the file by its URL",
                "model");
  std::vector<HubFile> files;
  for (size_t i = 0; i < json->size(); ++i) {
    HR_ASSIGN_OR_RETURN(HubFile file, ReadFile((*json)[i], "files[" + std::to_string(i) + "]"));
    // A path that could not be a file name here is not offered.
    if (!file.path.ends_with(".gguf") || !ParseHubSource(source.repository + ":" + file.path)) continue;
    file.url = options.endpoint + "/" + source.repository + "/resolve/main/" + file.path;
    files.push_back(std::move(file));
  }
  return ChooseHubFiles(std::move(files), source);
}

Result<std::vector<HubFile>> ChooseHubFiles(std::vector<HubFile> files, const HubSource& source) {
  if (files.empty())
    return Fail(
        ErrorCode::kUnsupported,
        source.repository +
            " has no GGUF file; pull takes these. Download its folder by other means and give its path to run or serve",
        "model");
  std::ranges::sort(files, {}, &HubFile::path);
  std::vector<std::string> models;
  for (const HubFile& file : files)
    if (std::string model = ModelOf(file.path); models.empty() || models.back() != model)
      models.push_back(std::move(model));
  std::string chosen;
  for (const HubFile& file : files)
    if (!source.file.empty() && (file.path == source.file || LastComponent(file.path) == source.file))
      chosen = ModelOf(file.path);
  const auto take_first = [&](std::string_view quant) {
    for (const std::string& model : models)
      if (chosen.empty() && NamesQuant(model + ".gguf", quant)) chosen = model;
  };
  if (source.file.empty()) {
    // Small and good first: what people with a CPU take.
    for (const std::string_view quant : {"Q4_K_M", "Q4_0", "Q4_1", "Q5_K_M", "Q8_0", "F16"}) take_first(quant);
    if (chosen.empty()) chosen = models.front();
  } else {
    take_first(source.file);
  }
  if (chosen.empty()) {
    std::string names;
    for (size_t i = 0; i < models.size() && i < 20; ++i)
      names.append(i == 0 ? "" : ", ").append(LastComponent(models[i]));
    return Fail(
        ErrorCode::kNotFound,
        source.repository + " has no file or quantisation '" + EscapeForLog(source.file, 60) + "'; it has " + names,
        "model");
  }
  std::erase_if(files, [&](const HubFile& file) { return ModelOf(file.path) != chosen; });
  return files;
}

}  // namespace headrace
