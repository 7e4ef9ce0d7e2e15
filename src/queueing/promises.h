// Places in line that refused callers were told to come back for. When the time has come a place is held for a while,
// so that newcomers do not take it first. A caller is known by the fingerprint of its request. Pure; one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"

namespace headrace {

// Remembered at once; the oldest give way. A search through them takes less than a microsecond.
constexpr int32_t kPromises = 1024;
// How long a place is held: the jitter of a second, and a second for the way.
constexpr TimeNs kPromiseGrace = 2 * kNsPerSecond;

class Promises {
 public:
  Promises() : ring_(kPromises) {}

  // fingerprint 0: nobody that could be known again; nothing happens.
  void Give(uint64_t fingerprint, uint64_t tenant, TimeNs due);
  // The moment that this caller was told and that has not passed by more than the grace; kNever if none.
  TimeNs Find(uint64_t fingerprint, TimeNs now) const;
  // It came back and was let in.
  void Keep(uint64_t fingerprint);
  // Places held now for callers of this tenant who have not come yet.
  int32_t Held(uint64_t tenant, TimeNs now) const;

 private:
  struct Promise {
    uint64_t fingerprint = 0;  // 0: kept, or never given
    uint64_t tenant = 0;
    TimeNs due = 0;
  };
  std::vector<Promise> ring_;
  size_t next_ = 0;
};

}  // namespace headrace
