#include "exit_code.h"

#include <cstdio>

namespace headrace {

int Complain(const Error& error) {
  std::fprintf(stderr, "headrace: %s\n", error.message.c_str());
  return ExitCodeOf(error);
}

}  // namespace headrace
