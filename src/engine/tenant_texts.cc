#include "engine/tenant_texts.h"

#include <algorithm>

namespace headrace {

std::shared_ptr<TextIndex> TenantTexts::Of(const std::string& name_space) {
  const MutexLock lock(mutex_);
  Entry& entry = entries_[name_space];
  entry.asked = ++asks_;
  if (entry.index != nullptr) return entry.index;
  entry.index = std::make_shared<TextIndex>(kTokensMax);
  std::shared_ptr<TextIndex> index = entry.index;
  if (entries_.size() > kTenantsMax) {
    entries_.erase(std::ranges::min_element(entries_, {}, [](const auto& item) { return item.second.asked; }));
  }
  return index;
}

}  // namespace headrace
