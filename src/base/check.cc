#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace headrace {

void CheckFailed(const char* file, int line, const std::string& what) {
  std::fprintf(stderr,
               "CHECK failed at %s:%d: %s\nThis is a fault in Headrace; please report it with the lines above.\n", file,
               line, what.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace headrace
