// What `doctor` says about the machine. Functions without state.
#pragma once

#include <cstdint>
#include <string>

namespace headrace {

// "" when the port can be bound on 127.0.0.1, else why not.
std::string PortTrouble(uint16_t port);
// Limits of the cgroup of this process, "none" when there are none.
std::string CgroupLimits();
std::string CpuFeatureNames();
// "1024 of at most 1048576".
std::string OpenFileLimit();
// The program found on PATH, "" when there is none.
std::string FindProgram(const std::string& name);

}  // namespace headrace
