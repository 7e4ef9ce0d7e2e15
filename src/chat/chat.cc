#include "chat/chat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/clock.h"
#include "base/exit_code.h"
#include "chat/answerer.h"
#include "chat/chat_settings.h"
#include "chat/conversation.h"
#include "chat/ctrl_c.h"
#include "chat/history_file.h"
#include "chat/input_reader.h"
#include "chat/line_editor.h"
#include "chat/screen.h"
#include "chat/terminal_chat.h"

namespace headrace {
namespace {

int Complain(Screen& screen, const Error& error) {
  screen.EndLine();
  screen.Note("headrace: " + ErrorText(error, false));
  return ExitCodeOf(error);
}

ServeOptions ToServeOptions(const RunOptions& options) {
  ServeOptions serve;
  serve.model = options.model;
  serve.chat_template_file = options.chat_template_file;
  serve.isa = options.isa;
  serve.threads = options.threads;
  serve.ctx = options.ctx;
  serve.kv_memory_bytes = options.kv_memory_bytes;
  serve.kv_int8 = options.kv_int8;
  serve.pack_cache = options.pack_cache;
  serve.max_sequences = 1;
  // An answer that was stopped may still be inside when the next is asked for.
  serve.max_waiting = 4;
  serve.quiet = true;
  return serve;
}

// All of stdin, without its last line break.
Result<std::string> ReadStdin() {
  std::string text;
  char chunk[1 << 16];
  while (true) {
    const ssize_t got = read(STDIN_FILENO, chunk, sizeof(chunk));
    if (got < 0 && errno == EINTR) continue;
    // A closed stdin is an empty one.
    if (got < 0 && errno != EBADF)
      return Fail(ErrorCode::kIo, fmt::format("cannot read stdin: {}", std::strerror(errno)));
    if (got <= 0) break;
    text.append(chunk, static_cast<size_t>(got));
    if (text.size() > kMessageBytesMax) {
      return Fail(ErrorCode::kTooLarge,
                  fmt::format("stdin holds more than {} MiB, the largest prompt", kMessageBytesMax >> 20), "prompt");
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

// Argument, blank line, stdin; or the one of them that is there.
Result<std::string> OnePrompt(const RunOptions& options) {
  std::string prompt = options.has_prompt ? options.prompt : "";
  if (!options.has_prompt || isatty(STDIN_FILENO) == 0) {
    HR_ASSIGN_OR_RETURN(const std::string piped, ReadStdin());
    if (!prompt.empty() && !piped.empty()) prompt += "\n\n";
    prompt += piped;
  }
  if (prompt.size() > kMessageBytesMax) {
    return Fail(ErrorCode::kTooLarge, fmt::format("a prompt has at most {} MiB", kMessageBytesMax >> 20), "prompt");
  }
  if (prompt.find_first_not_of(" \t\r\n") == std::string::npos) {
    return Fail(ErrorCode::kInvalidArgument, "the prompt is empty: give it as an argument or on stdin", "prompt");
  }
  if (std::string why = WhyNotText(prompt); !why.empty())
    return Fail(ErrorCode::kInvalidArgument, std::move(why), "prompt");
  return prompt;
}

void SayIfBaseModel(const Answerer& answerer, const ChatSettings& settings, Screen& screen) {
  if (answerer.has_chat_template()) return;
  screen.Note(fmt::format(
      "This model has no chat template: it continues your text instead of answering it, by up to {} tokens. "
      "--chat-template FILE gives it one.",
      settings.max_tokens().value_or(kCompletionTokensDefault)));
  if (!settings.system().empty()) screen.Note("It does not see the system prompt.");
}

int AnswerOnce(Answerer& answerer, Screen& screen, const ChatSettings& settings, std::string prompt, bool verbose) {
  Conversation conversation;
  conversation.AddUser(std::move(prompt));
  const CtrlC ctrl_c;
  GenerationRequest request =
      answerer.has_chat_template() ? conversation.ChatRequest(settings) : conversation.CompletionRequest(settings);
  const auto answer = answerer.Ask(
      std::move(request), [&](std::string_view piece) { screen.Write(piece); },
      [&] { return CtrlC::Pressed() || !screen.status(); });
  if (!answer) return Complain(screen, answer.error());
  screen.EndLine();
  if (!screen.status()) return Complain(screen, screen.status().error());
  if (const std::string why = WhyCut(*answer, answerer.tokens_max(), false); !why.empty()) screen.Note(why);
  if (verbose) screen.Note(RatesOf(*answer));
  return answer->end == EndReason::kNone ? kExitInterrupted : 0;
}

int ChatUntilBye(Answerer& answerer, LineEditor& editor, Screen& screen, const ChatSettings& settings,
                 const RunOptions& options) {
  const CtrlC ctrl_c;
  const std::string name = std::filesystem::path(options.model).filename().string();
  screen.Note(fmt::format("{}: {}", name, answerer.MemoryPlan()));
  TerminalChat(answerer, editor, screen, settings, name, options.verbose).Run();
  return screen.status() ? 0 : Complain(screen, screen.status().error());
}

}  // namespace

int RunChat(const RunOptions& options) {
  const SystemClock clock;
  Screen screen(STDOUT_FILENO, STDERR_FILENO);
  const auto settings = ChatSettings::From(options);
  if (!settings) return Complain(screen, settings.error());
  const bool chat = !options.has_prompt && isatty(STDIN_FILENO) != 0 && screen.out_is_terminal();
  std::string prompt;
  if (!chat) {
    auto one = OnePrompt(options);
    if (!one) return Complain(screen, one.error());
    prompt = std::move(*one);
  }
  std::optional<LineEditor> editor;
  if (chat) {
    editor.emplace(DefaultHistoryPath());
    screen.Note("loading …");
  }
  const auto answerer = Answerer::Load(ToServeOptions(options), clock);
  if (!answerer) return Complain(screen, answerer.error());
  SayIfBaseModel(**answerer, *settings, screen);
  if (chat) return ChatUntilBye(**answerer, *editor, screen, *settings, options);
  return AnswerOnce(**answerer, screen, *settings, std::move(prompt), options.verbose);
}

}  // namespace headrace
