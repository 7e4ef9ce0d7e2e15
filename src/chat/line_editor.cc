#include "chat/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <cwchar>

#include "base/check.h"
#include "chat/ctrl_c.h"
#include "chat/history_file.h"

namespace headrace {
namespace {

// A signal that another thread took does not end the poll; then this does.
constexpr int kPollMs = 100;

char* Prompt(EditLine* el) {
  void* prompt = nullptr;
  el_get(el, EL_CLIENTDATA, &prompt);
  return static_cast<char*>(prompt);
}

// False at Ctrl-C.
bool WaitForKey() {
  pollfd key{STDIN_FILENO, POLLIN, 0};
  while (true) {
    if (CtrlC::Pressed()) return false;
    if (poll(&key, 1, kPollMs) > 0) return true;
  }
}

// libedit's own reading tries again after a signal; this one lets Ctrl-C end the line. 1: a character, 0: end, -1:
// error.
int ReadCharacter(EditLine*, wchar_t* out) {
  std::mbstate_t state{};
  while (true) {
    if (!WaitForKey()) {
      errno = EINTR;
      return -1;
    }
    char byte = 0;
    const ssize_t got = read(STDIN_FILENO, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return static_cast<int>(got);
    const size_t used = std::mbrtowc(out, &byte, 1, &state);
    if (used == static_cast<size_t>(-1))
      state = {};  // no character: dropped
    else if (used != static_cast<size_t>(-2))
      return 1;
  }
}

// libedit draws what the locale calls a character; text here is UTF-8 whatever the environment says.
void UseUtf8() {
  const char* named = std::setlocale(LC_CTYPE, "");
  if (named == nullptr || std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

struct LineEditor::State {
  explicit State(std::string path) : file(std::move(path)) {}
  ~State() {
    el_end(el);
    history_end(history);
  }
  void Remember(const char* line) {
    HistEvent event;
    ::history(history, &event, H_ENTER, line);
  }

  HistoryFile file;
  EditLine* el = nullptr;
  History* history = nullptr;
};

LineEditor::LineEditor(std::string history_path) : state_(std::make_unique<State>(std::move(history_path))) {
  UseUtf8();
  state_->history = history_init();
  state_->el = el_init("headrace", stdin, stdout, stderr);
  CHECK(state_->history != nullptr && state_->el != nullptr);  // both only allocate
  HistEvent event;
  ::history(state_->history, &event, H_SETSIZE, static_cast<int>(kHistoryLinesMax));
  ::history(state_->history, &event, H_SETUNIQUE, 1);
  for (const std::string& line : state_->file.Load()) state_->Remember(line.c_str());
  el_set(state_->el, EL_EDITOR, "emacs");
  el_set(state_->el, EL_PROMPT, Prompt);
  el_set(state_->el, EL_SIGNAL, 0);
  el_set(state_->el, EL_GETCFN, ReadCharacter);
  el_set(state_->el, EL_HIST, ::history, state_->history);
  el_set(state_->el, EL_BIND, "^R", "em-inc-search-prev", nullptr);
}

LineEditor::~LineEditor() = default;

LineEditor::End LineEditor::Read(const char* prompt, std::string* line) {
  el_resize(state_->el);  // the window may have another size by now
  el_set(state_->el, EL_CLIENTDATA, const_cast<char*>(prompt));
  int count = 0;
  const char* text = el_gets(state_->el, &count);
  if (CtrlC::Pressed()) return End::kCtrlC;
  if (text == nullptr || count <= 0) return End::kEof;
  line->assign(text, static_cast<size_t>(count));
  while (!line->empty() && (line->back() == '\n' || line->back() == '\r')) line->pop_back();
  if (!line->empty()) {
    state_->Remember(line->c_str());
    state_->file.Append(*line);
  }
  return End::kLine;
}

}  // namespace headrace
