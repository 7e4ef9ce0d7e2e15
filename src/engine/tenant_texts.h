// What tenants were answered, for the drafts of their next requests: one index a cache namespace, so that nobody's
// drafts come from another's text. The least recently asked go when there are too many.
//
// Threads: Of from any. What it returns belongs to the engine's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/mutex.h"
#include "engine/text_index.h"

namespace headrace {

class TenantTexts {
 public:
  static constexpr size_t kTenantsMax = 64;
  static constexpr size_t kTokensMax = 16'384;  // of one tenant, 16 bytes each

  // The index of a namespace, made at its first request.
  std::shared_ptr<TextIndex> Of(const std::string& name_space);

 private:
  struct Entry {
    std::shared_ptr<TextIndex> index;
    uint64_t asked = 0;
  };
  Mutex mutex_;
  std::unordered_map<std::string, Entry> entries_ GUARDED_BY(mutex_);
  uint64_t asks_ GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace
