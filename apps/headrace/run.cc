// headrace run [MODEL] [PROMPT]
#include "chat/chat.h"

#include <utility>

#include "base/log.h"
#include "command.h"
#include "exit_code.h"
#include "model_choice.h"

namespace headrace {
namespace {

std::string JoinedPrompt(const std::vector<std::string>& words) {
  std::string prompt;
  for (size_t i = 1; i < words.size(); ++i) prompt += (i > 1 ? " " : "") + words[i];
  return prompt;
}

RunOptions OptionsFrom(const Settings& s) {
  RunOptions o;
  o.verbose = s.Switch("verbose");
  o.system = s.Text("system");
  if (s.Has("temperature")) o.temperature = s.Number("temperature");
  if (s.Has("top-p")) o.top_p = s.Number("top-p");
  if (s.Has("seed")) o.seed = static_cast<uint64_t>(s.Integer("seed"));
  o.max_tokens = s.Integer("max-tokens");
  o.threads = static_cast<int>(s.Integer("threads"));
  o.ctx = s.Integer("ctx");
  o.kv_memory_bytes = s.Bytes("kv-memory");
  o.isa = s.Text("isa");
  o.chat_template_file = s.Text("chat-template");
  return o;
}

}  // namespace

int RunCommand(const Invocation& invocation) {
  // Standard output belongs to the answer, and standard error to what a person should read.
  StartLog("warn", LogFormat::kText);
  const auto& words = invocation.words;
  auto model = ChooseModel(invocation.settings, words.empty() ? "" : words.front());
  if (!model) return Complain(model.error());
  RunOptions options = OptionsFrom(invocation.settings);
  options.model = std::move(model->path);
  options.prompt = JoinedPrompt(words);
  options.has_prompt = words.size() > 1;
  return RunChat(options);
}

}  // namespace headrace
