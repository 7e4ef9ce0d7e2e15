// `headrace run`: one answer, or a conversation in the terminal.
#pragma once

#include <cstdint>
#include <string>

#include "json/json.h"

namespace headrace {

struct RunOptions {
  std::string model;  // path of a model, or script:FILE
  std::string prompt;
  bool has_prompt = false;
  bool verbose = false;  // end with tokens per second and time to first token
  std::string system;    // "": none
  // Settings by their names in the API: temperature ... stop, max_tokens. What is not there: the model's own, else the
  // defaults of chat_settings.h.
  Json settings = Json::object();
  int threads = 0;               // 0: usable cores
  int64_t ctx = 0;               // 0: the model's context
  uint64_t kv_memory_bytes = 0;  // 0: chosen from what is free
  bool kv_int8 = false;          // int8 in the KV cache instead of int16
  std::string isa, chat_template_file;
  std::string pack_cache;  // folder of packed weights between starts; "": none
};

// With a prompt, or when stdin or stdout is no terminal: one answer to stdout, everything else to stderr. Otherwise a
// chat until /bye or Ctrl-D. Returns the exit code (base/exit_code.h).
// Main thread, once: takes over SIGINT and sets the character locale.
int RunChat(const RunOptions& options);

}  // namespace headrace
