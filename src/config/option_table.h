// One table of all options: it drives the command line, HEADRACE_... in the environment, the configuration file, --help
// and shell completion. Constant; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

enum class OptionKind : uint8_t {
  kSwitch,  // --name; "true" or "false" in the other layers
  kText,
  kTexts,    // one or more; a flag given again adds to them
  kNames,    // the same, none of them empty or with control characters
  kSecret,   // a text that no command prints and the file does not hold
  kInteger,  // min to max
  kTokens,   // min to max: "8192", "8k" = 8000, "8K" = 8192; "auto" = 0 where that is in range
  kNumber,   // min to max
  kSeconds,  // "30", "1.5s", "500ms", "5m", "1h"; min to max seconds
  kBytes,    // "512MB", "2GiB"
  kFile,
  kFolder,
  kChoice,  // one of choices
};

enum class OptionGroup : uint8_t { kModel, kNetwork, kLimits, kMachine, kLog, kSampling, kTraffic, kOutput };
constexpr int kOptionGroups = 8;
std::string_view OptionGroupTitle(OptionGroup group);

// The commands that take an option, as bits.
enum CommandBit : uint32_t {
  kForServe = 1,
  kForRun = 2,
  kForPull = 4,
  kForList = 8,
  kForShow = 16,
  kForRm = 32,
  kForDoctor = 64,
  kForConfig = 128,
  kForBench = 256,
  kForSimulate = 512,
};

struct OptionSpec {
  std::string_view name;     // "max-batch-tokens": --max-batch-tokens, HEADRACE_MAX_BATCH_TOKENS, max_batch_tokens
  std::string_view aliases;  // other spellings, separated by blanks
  OptionKind kind = OptionKind::kText;
  OptionGroup group = OptionGroup::kModel;
  uint32_t commands = 0;
  std::string_view value_name;     // "N" in the help; a list's "NAME..." takes all words up to the next flag
  std::string_view default_value;  // "" is no value
  std::string_view help;
  double min = 0;
  double max = 0;
  std::string_view choices = "";   // kChoice: separated by blanks
  bool flag_only = false;          // it asks for something now
  std::string_view note = "";      // said when the flag is used
  std::string_view synonyms = "";  // kChoice: "other=choice", separated by blanks
};

std::span<const OptionSpec> OptionTable();
// By name or alias, with '-' or '_'. nullptr: there is none.
const OptionSpec* FindOption(std::string_view name);
bool IsList(OptionKind kind);                         // kTexts, kNames
std::string EnvironmentName(const OptionSpec& spec);  // "HEADRACE_MAX_BATCH_TOKENS"
std::string FileKey(const OptionSpec& spec);          // "max_batch_tokens"
// A blank-separated list taken apart.
std::vector<std::string_view> Words(std::string_view list);

}  // namespace headrace
