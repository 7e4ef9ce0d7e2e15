#include "config/option_table.h"

#include <algorithm>
#include <array>

namespace headrace {
namespace {

constexpr uint32_t kLoads = kForServe | kForRun | kForConfig;
constexpr uint32_t kServes = kForServe | kForConfig;
constexpr uint32_t kStores =
    kForServe | kForRun | kForPull | kForList | kForShow | kForRm | kForDoctor | kForConfig | kForBench | kForSimulate;
constexpr uint32_t kChats = kForRun | kForConfig;

using enum OptionKind;
using enum OptionGroup;

// Every maximum is where a larger value can only be a slip, or where the field that takes it ends.
constexpr std::array kTable = {
    OptionSpec{"model", "", kText, kModel, kServes, "MODEL", "",
               "model to serve: a name, a path, hf:OWNER/REPO or a URL (default: the only one here, else smollm2)"},
    OptionSpec{"served-model-name", "", kNames, kModel, kServes, "NAME...", "",
               "names that requests may use for the model"},
    OptionSpec{"chat-template", "", kFile, kModel, kLoads, "FILE", "",
               "Jinja chat template instead of the model's own"},
    OptionSpec{"models-dir", "", kFolder, kModel, kStores, "DIR", "",
               "models folder (default: ./models, else one in the user's data folder)"},
    OptionSpec{"offline", "", kSwitch, kModel, kForServe | kForRun | kForPull | kForConfig | kForBench, "", "false",
               "never fetch anything"},
    OptionSpec{"sha256", "", kText, kModel, kForPull, "HEX", "", "the hash that a URL's file must have", 0, 0, "",
               true},

    OptionSpec{"host", "", kText, kNetwork, kServes, "ADDRESS", "127.0.0.1", "address to listen on"},
    OptionSpec{"port", "", kInteger, kNetwork, kServes | kForDoctor, "N", "8080", "port to listen on; 0: any free one",
               0, 65535},
    OptionSpec{"api-key-file", "", kFile, kNetwork, kServes, "FILE", "",
               "TOML file of API keys; without it no key is asked for"},
    OptionSpec{"api-key", "", kSecret, kNetwork, kServes, "KEY", "",
               "one key that clients must send (better: HEADRACE_API_KEY or --api-key-file)", 0, 0, "", false,
               "--api-key is visible to everybody on this machine; HEADRACE_API_KEY and --api-key-file are not"},
    OptionSpec{"insecure", "", kSwitch, kNetwork, kServes, "", "false", "listen on other addresses without keys"},
    OptionSpec{"allowed-host", "", kTexts, kNetwork, kServes, "NAME", "",
               "name that a server without keys answers to, beside localhost; may be given again; *: any"},
    OptionSpec{"allowed-origin", "", kTexts, kNetwork, kServes, "ORIGIN", "",
               "pages that may call, such as https://chat.example, beside those of this machine; may be given again; "
               "*: any"},
    OptionSpec{"tls-cert", "ssl-certfile", kFile, kNetwork, kServes, "FILE", "",
               "certificate chain (PEM); turns TLS on"},
    OptionSpec{"tls-key", "ssl-keyfile", kFile, kNetwork, kServes, "FILE", "", "private key of --tls-cert (PEM)"},
    // Below a tenth of a second the comments would be most of the traffic.
    OptionSpec{"keep-alive", "", kSeconds, kNetwork, kServes, "TIME", "10",
               "silence after which a stream gets a comment, so that proxies keep it", 0.1, 86'400},

    OptionSpec{"ctx", "max-model-len ctx-size", kTokens, kLimits, kLoads | kForSimulate, "TOKENS", "0",
               "longest prompt and answer together, such as 8192 or 8K; 0 or auto: the model's", 0, 1 << 24},
    OptionSpec{"max-sequences", "max-num-seqs", kInteger, kLimits, kServes | kForSimulate, "N", "32",
               "requests computed at once", 1, 4096},
    OptionSpec{"max-waiting", "", kInteger, kLimits, kServes | kForSimulate, "N", "1024",
               "requests that may wait; more are refused with 503", 0, 1'000'000},
    OptionSpec{"max-batch-tokens", "max-num-batched-tokens", kTokens, kLimits, kServes | kForBench | kForSimulate, "N",
               "256", "tokens of a step in which answers wait for their next token", 1, 65'536},
    OptionSpec{"prompt-batch-tokens", "", kTokens, kLimits, kServes | kForSimulate, "N", "0",
               "tokens of a step in which no answer waits; 0: half a second's, 256 to 1,024", 0, 65'536},
    OptionSpec{"itl-target", "", kSeconds, kLimits, kServes | kForSimulate, "TIME", "0",
               "longest step while answers wait for a token; 0: 3 times the answers' own part, at least 45 ms", 0, 60},
    OptionSpec{"request-timeout", "", kSeconds, kLimits, kServes, "TIME", "0", "longest time of a request; 0: none", 0,
               604'800},
    OptionSpec{"queue-timeout", "", kSeconds, kLimits, kServes | kForSimulate, "TIME", "0",
               "longest wait before a request begins; 0: none", 0, 604'800},
    OptionSpec{"brown-out", "", kSeconds, kLimits, kServes | kForSimulate, "TIME", "30",
               "wait at which batch work rests; drafts stop at half, more is given up beyond; 0: never", 0, 604'800},
    OptionSpec{"drain-timeout", "shutdown-timeout", kSeconds, kLimits, kServes, "TIME", "600",
               "how long requests may go on after SIGTERM", 0, 604'800},

    OptionSpec{"threads", "", kInteger, kMachine, kLoads | kForDoctor | kForBench, "N", "0",
               "compute threads; 0: the physical cores this process may use", 0, 256},
    OptionSpec{"kv-memory", "kv-cache-memory-bytes", kBytes, kMachine, kLoads, "SIZE", "0",
               "memory of the KV cache, such as 2GiB; 0: what fits"},
    OptionSpec{"kv-type", "kv-cache-dtype cache-type-k", kChoice, kMachine, kLoads | kForBench, "TYPE", "int16",
               "numbers of the KV cache; int8: half the memory, a little less exact", 0, 0, "int16 int8", false, "",
               "auto=int16 q8_0=int8"},
    OptionSpec{"prefix-cache", "", kChoice, kMachine, kServes | kForSimulate, "on|off", "on",
               "keep the KV blocks of prompts, for requests that begin alike; changes no answer", 0, 0, "on off"},
    OptionSpec{"speculation", "", kChoice, kMachine, kServes, "HOW", "lookup",
               "draft what a text repeats and verify it, several tokens a step; changes no answer", 0, 0, "off lookup"},
    OptionSpec{"speculation-tokens", "", kInteger, kMachine, kServes, "N", "15",
               "drafts of one answer and step, at most; as many as pay are tried", 1, 15},
    OptionSpec{"cache-memory", "", kBytes, kMachine, kServes, "SIZE", "0",
               "memory for KV blocks that the KV cache gives up; 0: none"},
    OptionSpec{"cache-dir", "", kFolder, kMachine, kServes, "DIR", "",
               "keep KV blocks here, encrypted, also between starts; changes no answer"},
    OptionSpec{"cache-disk", "", kBytes, kMachine, kServes, "SIZE", "10GiB", "most that --cache-dir takes"},
    OptionSpec{"cache-key-file", "", kFile, kMachine, kServes, "FILE", "",
               "key of --cache-dir, made when it is not there (default: headrace/deployment.key in the user's state "
               "folder)"},
    OptionSpec{"pack-cache", "", kFolder, kMachine, kLoads | kForBench, "DIR", "",
               "keep packed weights here between starts, checked before they are used; as large as the model"},
    OptionSpec{"isa", "", kChoice, kMachine, kLoads | kForDoctor | kForBench, "NAME", "",
               "kernels instead of the best ones of this CPU", 0, 0, "reference avx2 avxvnni avx512 amx neon"},

    OptionSpec{"log-level", "uvicorn-log-level", kChoice, kLog, kServes, "LEVEL", "info",
               "least important line to write", 0, 0, "trace debug info warn error", false, "",
               "warning=warn critical=error"},
    OptionSpec{"log-json", "", kSwitch, kLog, kServes, "", "false", "log lines as JSON"},
    OptionSpec{"decision-log", "", kFile, kLog, kServes, "FILE", "",
               "write here what each step was given and decided, for simulate --decisions; lengths, never texts"},
    OptionSpec{"no-vllm-metrics", "", kSwitch, kLog, kServes, "", "false", "leave vllm:... names out of /metrics"},

    OptionSpec{"system", "", kText, kSampling, kChats, "TEXT", "", "system prompt"},
    // The ranges of the API's fields of these names (a test in chat/ compares them).
    OptionSpec{"temperature", "temp", kNumber, kSampling, kChats, "X", "", "0 always takes the likeliest token", 0, 2},
    OptionSpec{"top-k", "", kInteger, kSampling, kChats, "N", "", "draw from the N likeliest tokens; 0: from all", -1,
               0x1p63},
    OptionSpec{"top-p", "", kNumber, kSampling, kChats, "X", "", "draw from the likeliest tokens that sum to X", 0, 1},
    OptionSpec{"min-p", "", kNumber, kSampling, kChats, "X", "",
               "draw from tokens at least X times as likely as the likeliest", 0, 1},
    OptionSpec{"presence-penalty", "", kNumber, kSampling, kChats, "X", "",
               "above 0: against tokens that the answer has already", -2, 2},
    OptionSpec{"frequency-penalty", "", kNumber, kSampling, kChats, "X", "", "the same, for each time that they occur",
               -2, 2},
    OptionSpec{"repetition-penalty", "", kNumber, kSampling, kChats, "X", "",
               "above 1: against tokens that prompt or answer have already", 0.001, 10},
    OptionSpec{"seed", "", kInteger, kSampling, kChats | kForSimulate, "N", "", "equal seeds give equal answers",
               -0x1p63, 0x1p63},
    OptionSpec{"stop", "", kTexts, kSampling, kChats, "TEXT", "", "end the answer before TEXT; may be given again"},
    OptionSpec{"max-tokens", "", kInteger, kSampling, kChats, "N", "", "longest answer", 1, 0x1p63},

    OptionSpec{"trace", "", kFile, kTraffic, kForSimulate, "FILE", "",
               "recorded requests: Mooncake's JSON lines, Azure's CSV or our own (default: drawn ones)", 0, 0, "",
               true},
    OptionSpec{"speed", "", kNumber, kTraffic, kForSimulate, "X", "1", "arrivals X times as dense as recorded", 0.0001,
               10'000, "", true},
    OptionSpec{"arrivals", "", kChoice, kTraffic, kForSimulate, "KIND", "recorded",
               "spread: requests with one stamp come at random moments until the next stamp", 0, 0, "recorded spread",
               true},
    // As many as a trace may have.
    OptionSpec{"requests", "", kInteger, kTraffic, kForSimulate, "N", "0",
               "requests to simulate; 0: all of the trace, 1000 drawn ones", 0, 1 << 20, "", true},
    OptionSpec{"rate", "", kNumber, kTraffic, kForSimulate, "X", "1", "drawn requests a second", 0.0001, 10'000, "",
               true},
    OptionSpec{"burstiness", "", kNumber, kTraffic, kForSimulate, "X", "1",
               "of drawn arrivals: standard deviation of the gaps over their mean; 1: Poisson", 0.01, 100, "", true},
    OptionSpec{"prompt-tokens", "", kTokens, kTraffic, kForSimulate, "N", "1000", "mean length of drawn prompts", 1,
               1 << 20, "", true},
    OptionSpec{"answer-tokens", "", kTokens, kTraffic, kForSimulate, "N", "200", "mean length of drawn answers", 1,
               1 << 20, "", true},
    OptionSpec{"answer-limit", "", kTokens, kTraffic, kForSimulate, "N", "0",
               "tokens that requests allow, more than answers become; 0: as many as there are", 0, 1 << 20, "", true},
    OptionSpec{"tenants", "", kInteger, kTraffic, kForSimulate, "N", "1", "whose drawn requests they are", 1, 10'000,
               "", true},
    OptionSpec{"order", "", kChoice, kTraffic, kForSimulate, "KIND", "fair",
               "who is next: fair shares and short work first, or first come, to compare", 0, 0, "fair first-come",
               true},
    OptionSpec{"faults", "", kSwitch, kTraffic, kForSimulate, "", "false",
               "pauses, failed steps, clock jumps, cancels and slow readers, by --seed", 0, 0, "", true},
    OptionSpec{"cost", "", kFile, kMachine, kForSimulate, "FILE", "",
               "step costs as bench calibrate wrote them (default: a large GPU, about)", 0, 0, "", true},
    OptionSpec{"step-us", "", kNumber, kMachine, kForSimulate, "X", "", "microseconds of any step, instead", 0.001, 1e7,
               "", true},
    OptionSpec{"prompt-row-us", "", kNumber, kMachine, kForSimulate, "X", "", "the same, for each prompt token", 0, 1e7,
               "", true},
    OptionSpec{"decode-row-us", "", kNumber, kMachine, kForSimulate, "X", "", "the same, for each answer in the step",
               0, 1e7, "", true},
    OptionSpec{"context-token-ns", "", kNumber, kMachine, kForSimulate, "X", "",
               "nanoseconds for each token that an answer attends to", 0, 1e7, "", true},
    OptionSpec{"kv-tokens", "", kTokens, kMachine, kForSimulate, "N", "600000", "tokens that the KV cache holds", 64,
               0x1p31, "", true},
    OptionSpec{"ttft-target", "", kSeconds, kOutput, kForSimulate, "TIME", "2s", "goodput: longest time to first token",
               0.001, 86'400, "", true},
    OptionSpec{"tpot-target", "", kSeconds, kOutput, kForSimulate, "TIME", "100ms",
               "goodput: longest mean time between tokens", 0.0001, 86'400, "", true},
    OptionSpec{"decisions", "", kFile, kTraffic, kForSimulate, "FILE", "",
               "a log of serve --decision-log: give the scheduler the same again and compare what it decides", 0, 0, "",
               true},
    OptionSpec{"check", "", kSwitch, kOutput, kForSimulate, "", "false", "check every invariant after every step", 0, 0,
               "", true},

    OptionSpec{"prompt", "", kText, kOutput, kForBench, "N,N", "128,512,1024", "lengths of prompts to measure", 0, 0,
               "", true},
    OptionSpec{"batch", "", kText, kOutput, kForBench, "N,N", "1,8,32", "numbers of sequences that generate at once", 0,
               0, "", true},
    OptionSpec{"depth", "", kText, kOutput, kForBench, "N,N", "0,2048",
               "tokens before the generated ones; above 0 for one sequence", 0, 0, "", true},
    // Five are the fewest that show a spread.
    OptionSpec{"repeat", "", kInteger, kOutput, kForBench, "R", "5", "measurements of each row", 1, 1000, "", true},
    OptionSpec{"format", "", kChoice, kOutput, kForBench, "NAME", "md", "form of the report", 0, 0, "md json csv",
               true},
    OptionSpec{"output", "", kFile, kOutput, kForBench, "FILE", "",
               "calibrate: write the step costs here, for simulate --cost", 0, 0, "", true},
    OptionSpec{"probe", "", kSwitch, kOutput, kForBench, "", "false",
               "measure this machine's limits alone, without a model", 0, 0, "", true},

    OptionSpec{"verbose", "", kSwitch, kOutput, kForRun, "", "false",
               "end with tokens per second and time to first token", 0, 0, "", true},
    OptionSpec{"json", "", kSwitch, kOutput, kForList | kForShow | kForSimulate, "", "false", "print JSON", 0, 0, "",
               true},
    OptionSpec{"yes", "", kSwitch, kOutput, kForRm, "", "false", "do not ask", 0, 0, "", true},
    OptionSpec{"origin", "", kSwitch, kOutput, kForConfig, "", "false", "show which layer set each value", 0, 0, "",
               true},
    OptionSpec{"config", "", kFile, kOutput, kStores, "FILE", "",
               "configuration file (default: headrace/headrace.toml in the user's configuration folder)", 0, 0, "",
               true},
};

bool SameName(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return (x == '_' ? '-' : x) == (y == '_' ? '-' : y); });
}

std::string UpperOrLower(std::string_view name, bool upper) {
  std::string out;
  for (const char c : name) out += c == '-' ? '_' : upper && c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return out;
}

}  // namespace

std::string_view OptionGroupTitle(OptionGroup group) {
  switch (group) {
    case kModel:
      return "Model";
    case kNetwork:
      return "Network";
    case kLimits:
      return "Limits";
    case kMachine:
      return "Machine";
    case kLog:
      return "Log and metrics";
    case kSampling:
      return "Sampling";
    case kTraffic:
      return "Traffic";
    case kOutput:
      return "Other";
  }
  return "";
}

std::span<const OptionSpec> OptionTable() { return kTable; }

const OptionSpec* FindOption(std::string_view name) {
  for (const OptionSpec& spec : kTable) {
    if (SameName(spec.name, name)) return &spec;
    for (const std::string_view alias : Words(spec.aliases))
      if (SameName(alias, name)) return &spec;
  }
  return nullptr;
}

bool IsList(OptionKind kind) { return kind == kTexts || kind == kNames; }

std::string EnvironmentName(const OptionSpec& spec) { return "HEADRACE_" + UpperOrLower(spec.name, true); }
std::string FileKey(const OptionSpec& spec) { return UpperOrLower(spec.name, false); }

std::vector<std::string_view> Words(std::string_view list) {
  std::vector<std::string_view> words;
  while (!list.empty()) {
    const size_t end = std::min(list.find(' '), list.size());
    if (end > 0) words.push_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return words;
}

}  // namespace headrace
