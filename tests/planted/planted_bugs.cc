// Goal: the tests on virtual time find bugs. Each of the bugs below is switched on in a process of its own, which runs
// the tests of simulate/: one must fail, a CHECK must stop it, or it must not come to an end. Without a bug all pass.
//
//   planted_bugs          all of them
//   planted_bugs 7        the tests with bug 7, in the open
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/planted.h"

namespace headrace {

int planted_bug = 0;

namespace {

struct Bug {
  int number;
  const char* what;
};
constexpr Bug kBugs[] = {
    {1, "pool: a block that is given back is not free"},
    {2, "pool: an idle block that is shared again stays idle"},
    {3, "pool: growth takes one block more than there are"},
    {4, "pool: a block that is begun does not count"},
    {5, "pool: the block of the last token is adopted, too"},
    {6, "pool: the block that another replaces is not given back"},
    {7, "block names: the namespace does not count"},
    {8, "prefix index: a parent keeps the count of an evicted child"},
    {9, "prefix index: a leaf that moves is not told where"},
    {10, "prefix index: a block in use stays among the leaves"},
    {11, "queue: deadlines do not count"},
    {12, "queue: the queue timeout does not count"},
    {13, "queue: who has gone still expires"},
    {14, "queue: the least urgent band is first"},
    {15, "queue: the last that was set aside stays so"},
    {16, "queue: the amount of work does not count"},
    {17, "shares: who was idle has saved up its share"},
    {18, "shares: weights do not count"},
    {19, "shares: a turn ends with the prompt only"},
    {20, "heap: the larger child may go up"},
    {21, "mergeable heap: the larger root may stay"},
    {22, "scheduler: who was set aside stays so"},
    {23, "scheduler: one more runs than may"},
    {24, "scheduler: cached tokens count twice"},
    {25, "scheduler: the newest of any band is preempted"},
    {26, "scheduler: who is preempted does not return to the line"},
    {27, "scheduler: a chunk counts one row too few"},
    {28, "scheduler: a drawn token does not count"},
    {29, "scheduler: a place is not free again"},
    {30, "scheduler: an urgent request takes no place from others"},
    {31, "engine: it sleeps after a step that ended an answer"},
    {32, "engine: computed blocks are not published"},
    {33, "engine: a decode gets the token before its own"},
    {34, "engine: answers are one token too long"},
    {35, "engine: an answer that has begun is not cancelled"},
    {36, "engine: who has gone still counts as inside"},
    {37, "engine: of a step that failed, the last request stays"},
    {38, "scheduler: what will not fit until it ends is admitted"},
};

// Of a processor: several times what all tests take without a bug.
constexpr rlim_t kSecondsMost = 20;

// Writes the first failure's test to a pipe.
class FirstFailure final : public testing::EmptyTestEventListener {
 public:
  explicit FirstFailure(int pipe) : pipe_(pipe) {}
  void OnTestStart(const testing::TestInfo& test) override { Say(test, '?'); }
  void OnTestEnd(const testing::TestInfo& test) override {
    if (test.result()->Failed()) Say(test, '!');
  }

 private:
  void Say(const testing::TestInfo& test, char mark) {
    const std::string line = fmt::format("{}{}.{}\n", mark, test.test_suite_name(), test.name());
    [[maybe_unused]] const ssize_t written = write(pipe_, line.data(), line.size());
  }
  const int pipe_;
};

[[noreturn]] void RunTests(int bug, int pipe) {
  planted_bug = bug;
  const rlimit most{kSecondsMost, kSecondsMost + 1};
  setrlimit(RLIMIT_CPU, &most);
  if (std::freopen("/dev/null", "w", stdout) == nullptr || std::freopen("/dev/null", "w", stderr) == nullptr) _exit(3);
  GTEST_FLAG_SET(fail_fast, true);
  GTEST_FLAG_SET(filter, "-*Mooncake*");  // long, and the same laws
  testing::UnitTest::GetInstance()->listeners().Append(new FirstFailure(pipe));
  _exit(RUN_ALL_TESTS());
}

struct Hunt {
  bool found = false;
  std::string how;
};

// The first test that failed ('!'), or else the last that began ('?').
std::string Telling(const std::string& said) {
  if (said.empty()) return "?before the first test";
  if (const size_t failed = said.find('!'); failed != std::string::npos)
    return said.substr(failed, said.find('\n', failed) - failed);
  const size_t end = said.size() - 1;
  const size_t begin = said.rfind('\n', end - 1);
  return said.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin == std::string::npos ? 0 : begin + 1));
}

Hunt HuntFor(int bug) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    RunTests(bug, ends[1]);
  }
  close(ends[1]);
  std::string said;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof(buffer))) > 0;) said.append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  const std::string test = Telling(said).substr(1);
  if (WIFSIGNALED(status))
    return {true, fmt::format("{} in {}",
                              WTERMSIG(status) == SIGABRT   ? "a CHECK"
                              : WTERMSIG(status) == SIGXCPU ? "no end"
                                                            : "a crash",
                              test)};
  return {WEXITSTATUS(status) == 1, test};
}

int HuntAll() {
  const Hunt clean = HuntFor(0);
  if (clean.found) {
    std::printf("without a bug: %s\n", clean.how.c_str());
    return 1;
  }
  int missed = 0;
  for (const Bug& bug : kBugs) {
    const Hunt hunt = HuntFor(bug.number);
    std::printf("%-3d %-60s %s\n", bug.number, bug.what, hunt.found ? hunt.how.c_str() : "NOT FOUND");
    std::fflush(stdout);
    missed += hunt.found ? 0 : 1;
  }
  std::printf("%d of %zu planted bugs found\n", static_cast<int>(std::size(kBugs)) - missed, std::size(kBugs));
  return missed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  // Fewer seeds than the room's own test takes: the shapes repeat.
  setenv("HEADRACE_SEEDS", "40", 0);
  testing::InitGoogleTest(&argc, argv);
  if (argc < 2) return headrace::HuntAll();
  headrace::planted_bug = std::atoi(argv[1]);
  return RUN_ALL_TESTS();
}
