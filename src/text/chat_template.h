// A model's chat template: messages in, the prompt's text out. Jinja as Python's transformers runs it, without access
// to files, environment or other templates, and with a budget of steps, bytes and time for every render.
//
// Thread-safe: immutable after Parse. Each Render runs on a short-lived thread of its own whose stack is large enough
// for the deepest value the steps allow; the caller's stack may be small. The steps end all work but the comparison of
// values whose parts are shared a thousandfold; a render stuck there fails in time, its thread goes on at idle
// priority, and a template with two of those renders nothing more until they end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

struct ts_template;

namespace headrace {

constexpr size_t kTemplateBytesMax = 1ull << 20;
constexpr size_t kTemplateContextBytesMax = 64ull << 20;

struct RenderLimits {
  // One step is one operation or 64 bytes of text handled. A turn of a chat costs about 100 and its text.
  uint64_t steps_max = 1'000'000;
  size_t output_bytes_max = 16ull << 20;
  // Render returns when the template has had this of a processor, whatever it does: within 20 ms more on a quiet
  // machine, within 40 times as long on a crowded one.
  uint64_t time_ms_max = 500;
  // What strftime_now tells. Below 0: the system's clock and time zone; else UTC.
  int64_t now_unix_seconds = -1;
};

class ChatTemplate {
 public:
  // kInvalidArgument with the line when `source` is not a template.
  static Result<std::unique_ptr<ChatTemplate>> Parse(std::string source);
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // `context_json` is an object: messages, tools, add_generation_prompt, bos_token, eos_token and what else the
  // template reads. kInvalidArgument with the template's own message when it calls raise_exception, and when the
  // template fails or uses up a limit.
  Result<std::string> Render(std::string_view context_json, const RenderLimits& limits = {}) const;

  std::string_view source() const { return source_; }

 private:
  ChatTemplate(ts_template* handle, std::string source) : handle_(handle), source_(std::move(source)) {}

  ts_template* handle_;  // owned
  std::string source_;
};

}  // namespace headrace
