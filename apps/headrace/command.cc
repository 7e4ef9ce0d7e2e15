#include "command.h"

#include <array>

namespace headrace {
namespace {

constexpr size_t kAnyNumber = 100'000;

constexpr std::array kCommands = {
    CommandSpec{"run", "", "[MODEL] [PROMPT]", "chat in the terminal, or answer PROMPT", kForRun, kAnyNumber, "MODEL",
                RunCommand},
    CommandSpec{"serve", "", "[MODEL]", "serve a model over HTTP", kForServe, kAnyNumber, "MODEL", ServeCommand},
    CommandSpec{"pull", "", "MODEL", "fetch a model: name, URL or hf:OWNER/REPO[:FILE or QUANT]", kForPull, 1, "MODEL",
                PullCommand},
    CommandSpec{"list", "ls", "", "models on this machine", kForList, 0, "", ListCommand},
    CommandSpec{"show", "", "MODEL", "what a model is and what memory it takes", kForShow, 1, "MODEL", ShowCommand},
    CommandSpec{"rm", "", "MODEL", "remove a model from the models folder", kForRm, 1, "MODEL", RmCommand},
    CommandSpec{"bench", "", "engine|calibrate [MODEL]", "measure prompts and answers, or the costs of a step",
                kForBench, 2, "engine calibrate", BenchCommand},
    CommandSpec{"simulate", "", "", "the scheduler under recorded or drawn traffic, on virtual time", kForSimulate, 0,
                "", SimulateCommand},
    CommandSpec{"doctor", "", "[MODEL]", "what this machine offers and what would not work", kForDoctor, 1, "MODEL",
                DoctorCommand},
    CommandSpec{"config", "", "show|check", "settings in force (--origin: which layer set each)", kForConfig, 1,
                "show check", ConfigCommand},
    CommandSpec{"completion", "", "bash|zsh|fish", "completion script for a shell", 0, 1, "bash zsh fish",
                CompletionCommand},
    CommandSpec{"version", "", "", "version of this program", 0, 0, "", VersionCommand},
};

}  // namespace

std::span<const CommandSpec> CommandTable() { return kCommands; }

const CommandSpec* FindCommand(std::string_view name) {
  for (const CommandSpec& command : kCommands)
    if (!name.empty() && (command.name == name || command.alias == name)) return &command;
  return nullptr;
}

}  // namespace headrace
