// Model hubs with the interface of Hugging Face: which files a repository has, and where they are downloaded.
// HEADRACE_HF_ENDPOINT names another hub, a mirror say; HF_TOKEN gives the login for models behind a licence.
// Blocks; one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "catalog/catalog.h"
#include "catalog/pull_ports.h"

namespace headrace {

constexpr size_t kHubListingBytesMax = 8u << 20;
constexpr size_t kHubFilesMax = 20'000;
constexpr size_t kHubPathBytesMax = 4096;

struct HubOptions {
  std::string endpoint;  // without a slash at the end
  std::string token;     // "": none
  static HubOptions FromEnvironment();
  HttpHeaders Headers() const;
};

struct HubFile {
  std::string path;  // in the repository
  std::string url;
  uint64_t bytes = 0;
  std::string sha256;  // "" when the hub publishes none
};

// The files to fetch, in order: one GGUF file, or all parts of one. Errors: kNotFound with what the repository has,
// kUnsupported when it has no GGUF file, those of the fetch.
Result<std::vector<HubFile>> ResolveHubSource(const HubSource& source, const HubOptions& options,
                                              const PullPorts& ports);

// Of GGUF files the one that `wanted` names: its path, its quantisation ("Q4_K_M", in any case), or for "" the first of
// Q4_K_M, Q4_0, Q4_1, Q5_K_M, Q8_0, F16 that is there. Numbered parts come together.
Result<std::vector<HubFile>> ChooseHubFiles(std::vector<HubFile> files, const HubSource& source);

}  // namespace headrace
