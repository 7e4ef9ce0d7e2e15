// The chat in the terminal: a prompt, a command or an answer, again.
#pragma once

#include <string>
#include <string_view>

#include "chat/answerer.h"
#include "chat/chat_settings.h"
#include "chat/command.h"
#include "chat/conversation.h"
#include "chat/input_reader.h"
#include "chat/line_editor.h"
#include "chat/screen.h"

namespace headrace {

// Main thread.
class TerminalChat {
 public:
  // Borrows answerer, editor and screen. `model_name` is shown and saved.
  TerminalChat(Answerer& answerer, LineEditor& editor, Screen& screen, ChatSettings settings, std::string model_name,
               bool verbose);

  // Until /bye or Ctrl-D.
  void Run();

 private:
  enum class Next { kPrompt, kLeave };

  Next TakeLine(std::string_view line);
  Next TakeCommand(std::string_view text);
  void AnswerMessage(std::string text);
  void Keep(Answer answer);
  void SayHowItEnded(const Answer& answer);
  void Set(std::string_view argument);
  void Show(std::string_view argument);
  void Save(std::string_view file);

  Answerer& answerer_;
  LineEditor& editor_;
  Screen& screen_;
  ChatSettings settings_;
  const std::string model_name_;
  const bool verbose_;
  InputReader reader_;
  Conversation conversation_;
  int64_t tokens_used_ = 0;  // of the context, by the last answer
  std::string saved_to_;     // the file that /save may replace
};

// Why an answer stopped where it did, with what to do; "" when it ended by itself.
std::string WhyCut(const Answer& answer, int64_t tokens_max, bool in_chat);
// An error for the person; in a chat a full context names /clear.
std::string ErrorText(const Error& error, bool in_chat);

}  // namespace headrace
