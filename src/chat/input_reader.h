// Lines typed by a person become messages and commands. Pure; one thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace headrace {

// Of one message, typed or piped. As large as a request's body in the API.
constexpr size_t kMessageBytesMax = 16u << 20;

struct ChatInput {
  enum class Kind {
    kNone,  // a blank line
    kMore,  // inside """, more lines follow
    kMessage,
    kCommand,  // text starts with '/'
    kRefused,  // text says why; what was typed is dropped
  };
  Kind kind = Kind::kNone;
  std::string text;
};

// Text between """ and """ may span lines and is taken as it stands, but for the line breaks next to the quotes; so is
// such an argument of a command:
//   /set system """You are
//   brief."""
class InputReader {
 public:
  // `line` without its line break.
  ChatInput Take(std::string_view line);
  // Drops an unfinished text.
  void Discard();
  bool inside_quotes() const { return inside_; }

 private:
  ChatInput Start(std::string_view line);
  ChatInput Continue(std::string_view rest);
  ChatInput Finish(std::string text);

  std::string text_;  // so far, with the command in front of the quotes
  bool inside_ = false;
  bool just_opened_ = false;  // nothing stood behind the quotes
  bool quoted_ = false;       // the whole message is: a '/' at its start is text
};

// "" for UTF-8 without NUL, else the place of the first other byte: a prompt that is binary by mistake is not repaired.
std::string WhyNotText(std::string_view text);

}  // namespace headrace
