#include "queueing/promises.h"

namespace headrace {

void Promises::Give(uint64_t fingerprint, uint64_t tenant, TimeNs due) {
  if (fingerprint == 0) return;
  ring_[next_] = {fingerprint, tenant, due};
  next_ = (next_ + 1) % ring_.size();
}

TimeNs Promises::Find(uint64_t fingerprint, TimeNs now) const {
  if (fingerprint == 0) return kNever;
  for (const Promise& promise : ring_) {
    if (promise.fingerprint == fingerprint && now - promise.due <= kPromiseGrace) return promise.due;
  }
  return kNever;
}

void Promises::Keep(uint64_t fingerprint) {
  if (fingerprint == 0) return;
  for (Promise& promise : ring_) {
    if (promise.fingerprint == fingerprint) promise = {};
  }
}

int32_t Promises::Held(uint64_t tenant, TimeNs now) const {
  int32_t held = 0;
  for (const Promise& promise : ring_) {
    const bool is_due = promise.due <= now && now - promise.due <= kPromiseGrace;
    held += promise.fingerprint != 0 && promise.tenant == tenant && is_due ? 1 : 0;
  }
  return held;
}

}  // namespace headrace
