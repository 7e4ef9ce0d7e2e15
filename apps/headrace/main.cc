// headrace: parses the command line, resolves the settings, runs the command.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "command.h"
#include "command_line.h"
#include "config/config_file.h"
#include "config/settings.h"
#include "exit_code.h"

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
  return Settings::Resolve(line.flags, ReadEnvironment, &file);
}

void SayNotes(const Settings& settings) {
  for (const Setting& setting : settings.all())
    if (setting.origin != SettingOrigin::kDefault && !setting.spec->note.empty())
      std::fprintf(stderr, "headrace: %s\n", std::string(setting.spec->note).c_str());
}

int Main(const std::vector<std::string>& arguments) {
  if (const std::string help = AnswerToHelp(arguments); !help.empty()) {
    std::fputs(help.c_str(), stdout);
    return kExitOk;
  }
  auto line = ParseCommandLine(arguments);
  if (!line) return Complain(line.error());
  auto settings = ResolveSettings(*line);
  if (!settings) return Complain(settings.error());
  SayNotes(*settings);
  return line->command->run({std::move(line->words), std::move(*settings)});
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) { return headrace::Main(std::vector<std::string>(argv + 1, argv + argc)); }
