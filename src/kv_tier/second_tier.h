// What stands below the KV pool: host memory, disk, both or neither.
#pragma once

#include <memory>

#include "kv_tier/disk_tier.h"
#include "kv_tier/memory_tier.h"

namespace headrace {

struct SecondTier {
  std::unique_ptr<MemoryTier> memory;
  std::unique_ptr<DiskTier> disk;
  bool any() const { return memory || disk; }

  bool disk_failed = false;       // --cache-dir was asked for and cannot be used
  TimeNs virtual_disk_took = -1;  // DiskTier::Start's
};

}  // namespace headrace
