// `headrace run`: one answer, or a conversation in the terminal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace headrace {

struct RunOptions {
  std::string model;   // path of a model, or script:FILE
  std::string prompt;
  bool has_prompt = false;
  bool verbose = false;  // end with tokens per second and time to first token
  std::string system;    // "": none
  std::optional<double> temperature, top_p;  // unset: the model's own, else 0.7 and 0.95
  std::optional<uint64_t> seed;              // unset: drawn for each answer
  int64_t max_tokens = 0;                    // 0: what the context leaves
  int threads = 0;                           // 0: usable cores
  int64_t ctx = 0;                           // 0: the model's context
  uint64_t kv_memory_bytes = 0;              // 0: chosen from what is free
  std::string isa, chat_template_file;
};

// With a prompt, or when stdin or stdout is no terminal: one answer to stdout, everything else to stderr. Otherwise a
// chat until /bye or Ctrl-D. Returns the exit code: 0; 1 failed; 2 a wrong option or prompt; 3 no such model; 4 too
// little memory; 130 stopped by Ctrl-C.
// Main thread, once: takes over SIGINT and sets the character locale.
int RunChat(const RunOptions& options);

}  // namespace headrace
