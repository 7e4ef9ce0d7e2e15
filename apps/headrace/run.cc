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

// The options of sampling have the names of the API's fields.
Json SamplingFrom(const Settings& settings) {
  Json out = Json::object();
  for (const Setting& setting : settings.all()) {
    const OptionSpec& spec = *setting.spec;
    if (spec.group != OptionGroup::kSampling || setting.texts.empty() || spec.name == "system") continue;
    Json& field = out[FileKey(spec)];
    if (spec.kind == OptionKind::kTexts)
      field = setting.texts;
    else if (spec.kind == OptionKind::kInteger)
      field = settings.Integer(spec.name);
    else
      field = settings.Number(spec.name);
  }
  return out;
}

RunOptions OptionsFrom(const Settings& s) {
  RunOptions o;
  o.verbose = s.Switch("verbose");
  o.system = s.Text("system");
  o.settings = SamplingFrom(s);
  o.threads = static_cast<int>(s.Integer("threads"));
  o.ctx = s.Integer("ctx");
  o.kv_memory_bytes = s.Bytes("kv-memory");
  o.kv_int8 = s.Text("kv-type") == "int8";
  o.pack_cache = s.Text("pack-cache");
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
