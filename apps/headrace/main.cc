// headrace: parses the command line, resolves the settings, runs the command.
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "command.h"
#include "command_line.h"
#include "config/config_file.h"
#include "config/environment.h"
#include "config/settings.h"
#include "exit_code.h"
#include "help.h"

namespace headrace {
namespace {

const char* ReadEnvironment(const char* name) { return std::getenv(name); }

// --config FILE, else HEADRACE_CONFIG, else the user's own file, else none.
Result<ConfigFile> FindConfigFile(const FlagValues& flags) {
  const auto flag = flags.find("config");
  const char* variable = ReadEnvironment("HEADRACE_CONFIG");
  std::string path = flag != flags.end() ? flag->second.back() : variable != nullptr ? variable : "";
  if (path.empty()) path = DefaultConfigPath();
  if (path.empty()) return ConfigFile{};
  return ReadConfigFile(path);
}

Result<Settings> ResolveSettings(const CommandLine& line) {
  // A command without flags must work with any file: version and completion.
  if (line.command->bit == 0) return Settings::Resolve({}, [](const char*) { return nullptr; }, nullptr);
  HR_ASSIGN_OR_RETURN(const ConfigFile file, FindConfigFile(line.flags));
  return Settings::Resolve(line.flags, ReadEnvironment, &file, line.spellings);
}

void Say(const std::string& line) { std::fprintf(stderr, "headrace: %s\n", line.c_str()); }

void SayNotes(const CommandLine& line, const Settings& settings) {
  for (const Setting& setting : settings.all())
    if (setting.origin == SettingOrigin::kFlag && !setting.spec->note.empty()) Say(std::string(setting.spec->note));
  std::string ignored;
  for (const std::string& flag : line.ignored) ignored += (ignored.empty() ? "" : ", ") + flag;
  if (!ignored.empty()) Say("ignored, as there is nothing to change: " + ignored);
  if (line.command->bit != kForServe && line.command->bit != kForConfig) return;
  std::vector<std::string_view> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
  for (const std::string& warning : EnvironmentWarnings(variables)) Say(warning);
}

// What was printed and could not be written, such as to a full disk, is a failure. A server goes on without its stdout.
int WithOutputWritten(int code, bool serves) {
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (written || serves || code != kExitOk) return code;
  Say("standard output cannot be written");
  return kExitFailure;
}

[[noreturn]] void EndWithoutMemory() {
  constexpr std::string_view kLine =
      "headrace: not enough memory (or threads) for this process: free some, raise its limit (ulimit -v, ulimit -u, "
      "the "
      "container's), or choose a smaller model, --ctx or --kv-memory\n";
  [[maybe_unused]] const ssize_t put = write(STDERR_FILENO, kLine.data(), kLine.size());
  std::_Exit(kExitCannotServe);
}

// On any thread. One that cannot be started for lack of memory or by a limit is a system_error.
[[noreturn]] void OnTerminate() {
  try {
    if (const auto current = std::current_exception()) std::rethrow_exception(current);
    // Threads that were started before the one that could not be: their destructor ends here.
    if (std::uncaught_exceptions() > 0) EndWithoutMemory();
  } catch (const std::bad_alloc&) {
    EndWithoutMemory();
  } catch (const std::system_error& e) {
    if (e.code() == std::errc::resource_unavailable_try_again || e.code() == std::errc::not_enough_memory)
      EndWithoutMemory();
    Say(e.what());
  } catch (const std::exception& e) {
    Say(e.what());
  } catch (...) {
    Say("an exception of unknown type");
  }
  std::abort();
}

void PrepareProcess() {
  std::set_new_handler(EndWithoutMemory);
  std::set_terminate(OnTerminate);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of that write, not the end of the process
}

int Main(const std::vector<std::string>& arguments) {
  PrepareProcess();
  if (const std::string help = AnswerToHelp(arguments); !help.empty()) {
    std::fputs(help.c_str(), stdout);
    return WithOutputWritten(kExitOk, false);
  }
  auto line = ParseCommandLine(arguments);
  if (!line) return Complain(line.error());
  auto settings = ResolveSettings(*line);
  if (!settings) return Complain(settings.error());
  SayNotes(*line, *settings);
  const bool serves = line->command->bit == kForServe;
  try {
    return WithOutputWritten(
        line->command->run({std::move(line->words), std::move(*settings), std::move(line->last_taken)}), serves);
  } catch (const std::system_error& e) {  // fmt::print to a full disk
    Say(std::string("standard output cannot be written: ") + e.what());
    return kExitFailure;
  }
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) { return headrace::Main(std::vector<std::string>(argv + 1, argv + argc)); }
