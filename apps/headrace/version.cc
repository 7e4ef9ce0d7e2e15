// headrace version
#include <cstdio>

#include "command.h"
#include "exit_code.h"
#include "help.h"

namespace headrace {

int VersionCommand(const Invocation&) {
  std::puts(VersionLine().c_str());
  return kExitOk;
}

}  // namespace headrace
