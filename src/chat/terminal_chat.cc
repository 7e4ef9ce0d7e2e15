#include "chat/terminal_chat.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "chat/ctrl_c.h"

namespace headrace {
namespace {

constexpr char kPrompt[] = ">>> ";
constexpr char kMorePrompt[] = "... ";

// "~/notes.json" as a shell would read it.
std::string ExpandHome(std::string_view path) {
  const char* home = std::getenv("HOME");
  if (home == nullptr || !path.starts_with("~/")) return std::string(path);
  return std::string(home) + std::string(path.substr(1));
}

}  // namespace

TerminalChat::TerminalChat(Answerer& answerer, LineEditor& editor, Screen& screen, ChatSettings settings,
                           std::string model_name, bool verbose)
    : answerer_(answerer),
      editor_(editor),
      screen_(screen),
      settings_(std::move(settings)),
      model_name_(std::move(model_name)),
      verbose_(verbose) {}

void TerminalChat::Run() {
  screen_.Note("/help lists the commands; /bye or Ctrl-D ends.");
  Next next = Next::kPrompt;
  while (next == Next::kPrompt && screen_.status()) {
    CtrlC::Forget();
    std::string line;
    const bool inside = reader_.inside_quotes();
    const LineEditor::End end = editor_.Read(inside ? kMorePrompt : kPrompt, &line);
    if (end == LineEditor::End::kLine) {
      next = TakeLine(line);
      continue;
    }
    screen_.Note("");
    if (inside)
      screen_.Note("The unfinished message was dropped.");
    else if (end == LineEditor::End::kCtrlC)
      screen_.Note("/bye or Ctrl-D ends the chat.");
    else
      next = Next::kLeave;
    reader_.Discard();
  }
}

TerminalChat::Next TerminalChat::TakeLine(std::string_view line) {
  ChatInput input = reader_.Take(line);
  switch (input.kind) {
    case ChatInput::Kind::kCommand:
      return TakeCommand(input.text);
    case ChatInput::Kind::kMessage:
      AnswerMessage(std::move(input.text));
      break;
    case ChatInput::Kind::kRefused:
      screen_.Note(input.text);
      break;
    case ChatInput::Kind::kNone:
    case ChatInput::Kind::kMore:
      break;
  }
  return Next::kPrompt;
}

TerminalChat::Next TerminalChat::TakeCommand(std::string_view text) {
  const auto command = ChatCommand::Parse(text);
  if (!command) {
    screen_.Note(command.error().message);
    return Next::kPrompt;
  }
  switch (command->name) {
    case ChatCommand::Name::kSet:
      Set(command->argument);
      break;
    case ChatCommand::Name::kShow:
      Show(command->argument);
      break;
    case ChatCommand::Name::kClear:
      conversation_.Clear();
      tokens_used_ = 0;
      screen_.Note("The conversation is forgotten.");
      break;
    case ChatCommand::Name::kSave:
      Save(command->argument);
      break;
    case ChatCommand::Name::kHelp:
      screen_.Note(CommandHelp());
      break;
    case ChatCommand::Name::kBye:
      return Next::kLeave;
  }
  return Next::kPrompt;
}

void TerminalChat::AnswerMessage(std::string text) {
  conversation_.AddUser(std::move(text));
  CtrlC::Forget();
  GenerationRequest request =
      answerer_.has_chat_template() ? conversation_.ChatRequest(settings_) : conversation_.CompletionRequest(settings_);
  auto answer = answerer_.Ask(
      std::move(request), [this](std::string_view piece) { screen_.Write(piece); },
      [this] { return CtrlC::Pressed() || !screen_.status(); });
  screen_.EndLine();
  if (!answer) {
    conversation_.DropLast();
    screen_.Note(ErrorText(answer.error(), true));
    return;
  }
  SayHowItEnded(*answer);
  Keep(std::move(*answer));
}

void TerminalChat::SayHowItEnded(const Answer& answer) {
  if (answer.end == EndReason::kNone) {
    screen_.Note(answer.text.empty() ? "Stopped before an answer; your message was dropped."
                                     : "Stopped; the chat goes on from here.");
  }
  if (const std::string why = WhyCut(answer, answerer_.tokens_max(), true); !why.empty()) screen_.Note(why);
  if (verbose_) screen_.Note(RatesOf(answer));
}

void TerminalChat::Keep(Answer answer) {
  if (answer.end == EndReason::kNone && answer.text.empty()) {
    conversation_.DropLast();
    return;
  }
  tokens_used_ = answer.prompt_tokens + answer.generated_tokens;
  conversation_.AddAssistant(std::move(answer.text));
}

void TerminalChat::Set(std::string_view argument) {
  const SettingWords words = SplitSetting(argument);
  if (words.value.empty()) {
    screen_.Note("/set needs a name and a value. Now:\n" + settings_.AsText());
    return;
  }
  const Status set = settings_.Set(words.name, words.value);
  if (!set)
    screen_.Note(set.error().message);
  else if (words.name == "system" && !answerer_.has_chat_template())
    screen_.Note("This model does not see a system prompt.");
  else
    screen_.Note(fmt::format("{} is set.", words.name));
}

void TerminalChat::Show(std::string_view argument) {
  if (!argument.empty()) screen_.Note("/show shows all there is and takes no word.");
  screen_.Note(fmt::format("model {}\n{}\ncontext: {} of {} tokens used\n{}", model_name_, answerer_.MemoryPlan(),
                           tokens_used_, answerer_.tokens_max(), settings_.AsText()));
}

void TerminalChat::Save(std::string_view file) {
  if (file.empty()) return screen_.Note("/save needs a FILE.");
  const std::string path = ExpandHome(file);
  std::error_code ignored;
  if (path != saved_to_ && std::filesystem::exists(path, ignored)) {
    return screen_.Note(fmt::format("{} exists and was not written by this chat; choose another name.", file));
  }
  const Status written = WriteFileAtomically(path, DumpJson(conversation_.Transcript(model_name_, settings_)) + "\n");
  if (!written) return screen_.Note(written.error().message);
  saved_to_ = path;
  screen_.Note(fmt::format("Saved to {}.", file));
}

std::string WhyCut(const Answer& answer, int64_t tokens_max, bool in_chat) {
  if (answer.end != EndReason::kLength) return {};
  if (answer.prompt_tokens + answer.generated_tokens >= tokens_max) {
    return fmt::format("The context of {} tokens is full: the answer was cut. {}", tokens_max,
                       in_chat ? "/clear forgets the conversation and makes room."
                               : "A larger --ctx, if the model has it, gives more room.");
  }
  return fmt::format("Cut after {} tokens (max_tokens).", answer.generated_tokens);
}

std::string ErrorText(const Error& error, bool in_chat) {
  if (error.code != ErrorCode::kContextLength) return error.message;
  return error.message + (in_chat ? " /clear forgets the conversation and makes room; this message was dropped." : "");
}

}  // namespace headrace
