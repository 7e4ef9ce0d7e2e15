// `headrace pull`: from a name, a hub repository, a URL or a path to a file on disk that can be served.
// Blocks; one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "catalog/catalog.h"
#include "catalog/hub.h"
#include "catalog/models_folder.h"
#include "catalog/progress.h"
#include "catalog/pull_ports.h"

namespace headrace {

struct PullOptions {
  bool offline = false;
  std::string sha256;  // of a URL's file; "": not known
  HubOptions hub;
};

struct PulledModel {
  std::string path;  // to give to serve and run: of the first part
  bool was_there = false;
  bool verified = false;  // by a published SHA-256
  uint64_t bytes = 0;
};

// What pull and ResolveModel can be given.
enum class ModelReference : uint8_t { kPath, kName, kHub, kUrl };
// "hf:..." and "scheme://..." are those; what holds a '/', is "." or "..", or exists on disk as a file or a model
// folder is a path; the rest are names.
ModelReference ClassifyReference(std::string_view reference);

class Puller {
 public:
  // Borrows all of them.
  Puller(const Catalog& catalog, const ModelsFolder& folder, const PullPorts& ports, PullProgress& progress)
      : catalog_(catalog), folder_(folder), ports_(ports), progress_(progress) {}

  // Errors: kNotFound naming near names or when offline, kUnavailable when the source is silent, kCorruptData, kIo with
  // field "disk", kPermissionDenied, kCancelled, kInvalidArgument with field "model".
  Result<PulledModel> Pull(const std::string& reference, const PullOptions& options);

 private:
  Result<PulledModel> PullEntry(const CatalogEntry& entry, const PullOptions& options);
  Result<PulledModel> PullSource(const CatalogEntry& entry, const ModelSource& source, const std::string& target,
                                 const PullOptions& options);
  Result<PulledModel> PullHubEntry(const CatalogEntry& entry, const HubSource& source, const std::string& target,
                                   const PullOptions& options);
  Result<PulledModel> PullHub(const HubSource& source, const PullOptions& options);
  Result<PulledModel> PullUrl(const std::string& url, const PullOptions& options);
  Result<PulledModel> PullFile(const HubFile& file, const PullOptions& options);
  Result<bool> IsThere(const std::string& path, uint64_t bytes, const std::string& sha256);

  const Catalog& catalog_;
  const ModelsFolder& folder_;
  const PullPorts& ports_;
  PullProgress& progress_;
};

// The path of a model that is on this machine: an existing path, a model of the folder, or the file of a catalogue name
// that was pulled. Otherwise kNotFound with field "model", which names near names and the pull command.
Result<std::string> ResolveModel(std::string_view name_or_path, const Catalog& catalog, const ModelsFolder& folder);
// The same with the default folder and its catalogue.
Result<std::string> ResolveModel(std::string_view name_or_path);

}  // namespace headrace
