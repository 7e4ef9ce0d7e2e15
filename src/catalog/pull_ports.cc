#include "catalog/pull_ports.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "net/event_loop.h"

extern char** environ;

namespace headrace {
namespace {

constexpr TimeNs kAskEvery = 100 * kNsPerMs;
constexpr size_t kOutputTailBytesMax = 8192;

using Cancelled = std::function<bool()>;

void WatchForCancel(EventLoop& loop, const Cancelled& cancelled, std::optional<Result<HttpResult>>& done) {
  loop.After(kAskEvery, [&] {
    if (done) return;
    if (!cancelled()) return WatchForCancel(loop, cancelled, done);
    done = Fail(PullCancelled());
    loop.Stop();
  });
}

Result<HttpResult> Fetch(const HttpFetchRequest& request, HttpBodySink on_body, HttpHeadSink on_head,
                         const Cancelled& cancelled) {
  EventLoop loop;
  std::optional<Result<HttpResult>> done;
  const auto call = StartFetch(loop, request, {std::move(on_head), std::move(on_body), [&](Result<HttpResult> result) {
                                                 done = std::move(result);
                                                 loop.Stop();
                                               }});
  WatchForCancel(loop, cancelled, done);
  loop.Run();
  return std::move(*done);
}

Result<uint64_t> FreeBytes(const std::string& folder) {
  struct statvfs info{};
  if (statvfs(folder.c_str(), &info) != 0)
    return Fail(ErrorCode::kIo,
                std::string("cannot ask for the free space of the models folder: ") + std::strerror(errno), "disk");
  return uint64_t{info.f_bavail} * info.f_frsize;
}

// A child whose stdin is empty and whose stdout and stderr are one pipe.
struct Child {
  pid_t pid = -1;
  int output = -1;
};

Result<Child> Spawn(const std::vector<std::string>& argv) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return Fail(ErrorCode::kIo, std::string("no pipe: ") + std::strerror(errno), "program");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  Child child{.output = ends[0]};
  const int failed = posix_spawnp(&child.pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (failed == 0) return child;
  close(ends[0]);
  return Fail(failed == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
              "cannot run " + argv[0] + ": " + std::strerror(failed), "program");
}

// Reads until the child closed its output; false when the person cancelled.
bool ReadOutput(const Child& child, const Cancelled& cancelled, std::string& tail) {
  char piece[4096];
  for (;;) {
    if (cancelled()) return false;
    pollfd waiting{child.output, POLLIN, 0};
    if (poll(&waiting, 1, static_cast<int>(kAskEvery / kNsPerMs)) <= 0) continue;
    const ssize_t got = read(child.output, piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    tail.append(piece, static_cast<size_t>(got));
    if (tail.size() > kOutputTailBytesMax) tail.erase(0, tail.size() - kOutputTailBytesMax);
  }
}

Result<ProgramResult> RunProgram(const std::vector<std::string>& argv, const Cancelled& cancelled) {
  HR_ASSIGN_OR_RETURN(const Child child, Spawn(argv));
  ProgramResult result;
  const bool finished = ReadOutput(child, cancelled, result.output_tail);
  if (!finished) kill(child.pid, SIGTERM);
  close(child.output);
  int status = 0;
  while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!finished) return Fail(PullCancelled());
  result.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace

Error PullCancelled() {
  return Error{ErrorCode::kCancelled, "interrupted; what was fetched is kept, the same command resumes", "", 0};
}

PullPorts SystemPullPorts(const std::function<bool()>& cancelled) {
  PullPorts ports;
  ports.cancelled = cancelled;
  ports.fetch = [cancelled](const HttpFetchRequest& request, HttpBodySink on_body, HttpHeadSink on_head) {
    return Fetch(request, std::move(on_body), std::move(on_head), cancelled);
  };
  ports.free_bytes = FreeBytes;
  ports.run_program = [cancelled](const std::vector<std::string>& argv) { return RunProgram(argv, cancelled); };
  ports.pause = [](TimeNs duration) { std::this_thread::sleep_for(std::chrono::nanoseconds(duration)); };
  return ports;
}

}  // namespace headrace
