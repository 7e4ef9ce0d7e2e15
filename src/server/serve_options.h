// Everything that `headrace serve` can be told. Filled by apps/headrace from flags, environment and file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace headrace {

struct ServeOptions {
  std::string model;                            // path of a model, or script:FILE
  std::vector<std::string> served_model_names;  // empty: the file's name
  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  std::vector<std::string> allowed_hosts;    // names accepted in Host by a server without keys; "*": any
  std::vector<std::string> allowed_origins;  // pages of other sites that may call; "*": any
  std::string api_key_file;
  std::string chat_template_file;
  std::string tls_cert, tls_key;
  std::string isa;               // kernels by name; "" for the best
  int threads = 0;               // 0: usable cores
  int64_t ctx = 0;               // 0: the model's context
  uint64_t kv_memory_bytes = 0;  // 0: chosen from what is free
  std::string pack_cache;        // folder of packed weights between starts; "": none
  bool kv_int8 = false;          // int8 in the KV cache instead of int16
  int max_batch_tokens = 256;    // rows of a step while an answer is generated
  int prompt_batch_tokens = 0;   // rows of one that holds prompts alone; 0: PromptBatchTokens
  int max_sequences = 32;
  int max_waiting = 1024;
  bool prefix_cache = true;
  int speculation_tokens = 15;              // drafts of one answer and step, at most; 0: none
  std::string cache_dir;                    // of KV blocks on disk; "": none
  uint64_t cache_disk_bytes = 10ull << 30;  // there, at most
  uint64_t cache_memory_bytes = 0;          // of KV blocks in host memory beside the pool; 0: none
  std::string cache_key_file;               // "": the user's, where there is a cache_dir
  double request_timeout_s = 0;             // 0: none
  double itl_target_s = 0;                  // EngineOptions::itl_target
  double queue_timeout_s = 0;
  double brown_out_s = 30;       // EngineOptions::brown_out_wait
  std::string decision_log;      // file that says what each step was given and decided; "": none
  double drain_timeout_s = 600;  // after SIGTERM; a second signal cuts it short
  double keep_alive_s = 10;      // between comments on a silent stream
  double stalled_after_s = 60;   // work and no step for this long: not healthy
  bool insecure = false;
  bool no_vllm_metrics = false;
  bool quiet = false;     // no banner
  bool embedded = false;  // RunServe always returns; else a signal during the load ends the process there
  std::function<void(uint16_t port)> on_listening;  // once the port is bound, before the model loads
};

}  // namespace headrace
