// What a pull needs from the machine, so that tests can bring a cut network, a full disk and a missing program.
// Callable from one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "net/http_client.h"

namespace headrace {

struct ProgramResult {
  int exit_status = 0;      // 128 + signal when killed
  std::string output_tail;  // the last 8 KiB of stdout and stderr together
};

struct PullPorts {
  std::function<Result<HttpResult>(const HttpFetchRequest&, HttpBodySink, HttpHeadSink)> fetch;
  // Bytes that this user may still write into the folder's file system.
  std::function<Result<uint64_t>(const std::string& folder)> free_bytes;
  // Runs argv[0] from PATH without a shell and waits. kNotFound: there is no such program.
  std::function<Result<ProgramResult>(const std::vector<std::string>& argv)> run_program;
  // True once the person wants to stop; asked at least ten times a second.
  std::function<bool()> cancelled;
  std::function<void(TimeNs)> pause;
};

// The real ones. `cancelled` is also asked while a server or program is silent.
PullPorts SystemPullPorts(const std::function<bool()>& cancelled);

Error PullCancelled();

}  // namespace headrace
