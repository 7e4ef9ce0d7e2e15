#include "base/random.h"

#include <sys/random.h>

#include "base/check.h"

namespace headrace {

uint64_t EntropySeed() {
  uint64_t value = 0;
  CHECK_EQ(getrandom(&value, sizeof value, 0), static_cast<ssize_t>(sizeof value));
  return value;
}

}  // namespace headrace
