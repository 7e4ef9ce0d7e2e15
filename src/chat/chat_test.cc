// Goal: what a person types becomes the right message, command or refusal; settings keep their ranges; a conversation
// keeps alternating; nothing a model writes can steer the terminal; answers from a scripted model arrive, stop and fail
// as they should.
#include "chat/chat.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "chat/answerer.h"
#include "chat/chat_settings.h"
#include "chat/command.h"
#include "chat/conversation.h"
#include "chat/history_file.h"
#include "chat/input_reader.h"
#include "chat/screen.h"
#include "chat/terminal_chat.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = ChatInput::Kind;

// A folder of its own, gone afterwards.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "chat_test_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string At(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// ---- what is typed -------------------------------------------------------------------------------------------------

ChatInput TakeAll(InputReader& reader, std::initializer_list<std::string_view> lines) {
  ChatInput last;
  for (const std::string_view line : lines) last = reader.Take(line);
  return last;
}

TEST(InputReaderTest, LinesAreMessagesAndCommands) {
  InputReader reader;
  EXPECT_EQ(reader.Take("").kind, Kind::kNone);
  EXPECT_EQ(reader.Take(" \t ").kind, Kind::kNone);
  const ChatInput message = reader.Take("  Hello there ");
  EXPECT_EQ(message.kind, Kind::kMessage);
  EXPECT_EQ(message.text, "Hello there");
  const ChatInput command = reader.Take(" /show ");
  EXPECT_EQ(command.kind, Kind::kCommand);
  EXPECT_EQ(command.text, "/show");
}

TEST(InputReaderTest, QuotesSpanLines) {
  InputReader reader;
  EXPECT_EQ(reader.Take("\"\"\"").kind, Kind::kMore);
  EXPECT_TRUE(reader.inside_quotes());
  EXPECT_EQ(reader.Take("  one").kind, Kind::kMore);
  EXPECT_EQ(reader.Take("").kind, Kind::kMore);
  EXPECT_EQ(reader.Take("/bye").kind, Kind::kMore);  // a command inside is text
  const ChatInput end = reader.Take("\"\"\" ");
  EXPECT_EQ(end.kind, Kind::kMessage);
  EXPECT_EQ(end.text, "  one\n\n/bye");
  EXPECT_FALSE(reader.inside_quotes());
}

TEST(InputReaderTest, QuotesNextToText) {
  InputReader reader;
  EXPECT_EQ(reader.Take("\"\"\"one line\"\"\"").text, "one line");
  EXPECT_EQ(TakeAll(reader, {"\"\"\"first", "second\"\"\""}).text, "first\nsecond");
  EXPECT_EQ(reader.Take("say \"\"\" please").text, "say \"\"\" please");
  EXPECT_EQ(reader.Take("\"\"\"\"\"\"").kind, Kind::kNone);
  EXPECT_EQ(TakeAll(reader, {"\"\"\"", " ", "\"\"\""}).kind, Kind::kNone);
}

TEST(InputReaderTest, QuotedSlashIsText) {
  InputReader reader;
  const ChatInput input = reader.Take("\"\"\"/etc/hosts: what is it?\"\"\"");
  EXPECT_EQ(input.kind, Kind::kMessage);
  EXPECT_EQ(input.text, "/etc/hosts: what is it?");
}

TEST(InputReaderTest, CommandArgumentMayBeQuoted) {
  InputReader reader;
  const ChatInput input = TakeAll(reader, {"/set system \"\"\"You are", "brief.\"\"\""});
  EXPECT_EQ(input.kind, Kind::kCommand);
  EXPECT_EQ(input.text, "/set system You are\nbrief.");
}

TEST(InputReaderTest, DiscardDropsTheUnfinished) {
  InputReader reader;
  TakeAll(reader, {"\"\"\"", "half"});
  reader.Discard();
  EXPECT_FALSE(reader.inside_quotes());
  EXPECT_EQ(reader.Take("whole").text, "whole");
}

TEST(InputReaderTest, RefusesWhatIsNotTextOrTooLong) {
  InputReader reader;
  EXPECT_EQ(reader.Take("ab\xFFz").kind, Kind::kRefused);
  EXPECT_THAT(WhyNotText("ab\xFFz"), HasSubstr("byte 2"));
  EXPECT_THAT(WhyNotText(std::string_view("a\0b", 3)), HasSubstr("byte 1"));
  EXPECT_EQ(WhyNotText("Grüße 🙂\n"), "");
  EXPECT_EQ(reader.Take(std::string(kMessageBytesMax + 1, 'x')).kind, Kind::kRefused);
  reader.Take("\"\"\"");
  EXPECT_EQ(reader.Take(std::string(kMessageBytesMax, 'x')).kind, Kind::kMore);
  EXPECT_EQ(reader.Take("y").kind, Kind::kRefused);
  EXPECT_FALSE(reader.inside_quotes());
}

// ---- commands and settings -----------------------------------------------------------------------------------------

TEST(CommandTest, KnowsItsWords) {
  EXPECT_EQ(ChatCommand::Parse("/bye")->name, ChatCommand::Name::kBye);
  EXPECT_EQ(ChatCommand::Parse("/exit")->name, ChatCommand::Name::kBye);
  const auto save = ChatCommand::Parse("/save  my notes.json");
  EXPECT_EQ(save->name, ChatCommand::Name::kSave);
  EXPECT_EQ(save->argument, "my notes.json");
  const SettingWords words = SplitSetting("system  Be brief.");
  EXPECT_EQ(words.name, "system");
  EXPECT_EQ(words.value, "Be brief.");
}

TEST(CommandTest, NamesNearOnes) {
  const auto unknown = ChatCommand::Parse("/claer");
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("Near: /clear"));
  EXPECT_THAT(ChatCommand::Parse("/").error().message, HasSubstr("/help"));
  for (const char* word : {"/set", "/show", "/clear", "/save", "/help", "/bye"}) EXPECT_THAT(CommandHelp(), HasSubstr(word));
}

TEST(ChatSettingsTest, TakesValuesInRangeOnly) {
  ChatSettings s;
  EXPECT_TRUE(s.Set("temperature", "0.25"));
  EXPECT_EQ(s.temperature, 0.25);
  EXPECT_TRUE(s.Set("top_k", "40"));
  EXPECT_TRUE(s.Set("seed", "18446744073709551615"));
  EXPECT_EQ(s.seed, UINT64_MAX);
  for (const char* bad : {"2.1", "-1", "nan", "inf", "1x", ""}) EXPECT_FALSE(s.Set("temperature", bad)) << bad;
  EXPECT_EQ(s.temperature, 0.25);
  EXPECT_FALSE(s.Set("max_tokens", "0"));
  EXPECT_FALSE(s.Set("max_tokens", "1.5"));
  EXPECT_TRUE(s.Set("temperature", "default"));
  EXPECT_FALSE(s.temperature.has_value());
  EXPECT_THAT(s.Set("top-p", "1").error().message, HasSubstr("Near: top_p"));
  EXPECT_THAT(s.Set("top_p", "7").error().message, HasSubstr("from 0 to 1"));
}

TEST(ChatSettingsTest, FromOptionsChecksThem) {
  RunOptions options;
  options.temperature = 0;
  options.max_tokens = 7;
  options.system = "Be brief.";
  const auto s = ChatSettings::From(options);
  ASSERT_TRUE(s);
  EXPECT_EQ(s->temperature, 0);
  EXPECT_EQ(s->max_tokens, 7);
  EXPECT_THAT(s->AsText(), HasSubstr("Be brief."));
  options.top_p = 3;
  EXPECT_EQ(ChatSettings::From(options).error().field, "top_p");
  options.top_p.reset();
  options.max_tokens = -1;
  EXPECT_EQ(ChatSettings::From(options).error().field, "max_tokens");
}

TEST(ChatSettingsTest, GivenWinsOverTheModelsDefaults) {
  ChatSettings s;
  ASSERT_TRUE(s.Set("temperature", "0"));
  GenerationRequest request;
  s.Apply(&request);
  request.sampling.FillFrom({.temperature = 0.6, .top_p = 0.9});
  EXPECT_EQ(request.sampling.temperature, 0);
  EXPECT_EQ(request.sampling.top_p, 0.9);
  GenerationRequest of_silent_model;
  ChatSettings{}.Apply(&of_silent_model);
  of_silent_model.sampling.FillFrom({});
  EXPECT_EQ(of_silent_model.sampling.temperature, kTemperatureDefault);
  EXPECT_EQ(of_silent_model.sampling.top_p, kTopPDefault);
}

// ---- conversation --------------------------------------------------------------------------------------------------

TEST(ConversationTest, SystemFirstThenTurns) {
  Conversation c;
  ChatSettings s;
  c.AddUser("one");
  c.AddAssistant("two");
  c.AddUser("three");
  EXPECT_EQ(c.ChatRequest(s).messages.size(), 3u);
  s.system = "Be brief.";
  EXPECT_EQ(DumpJson(c.ChatRequest(s).messages[0]), R"({"role":"system","content":"Be brief."})");
  c.DropLast();
  EXPECT_EQ(DumpJson(c.ChatRequest(s).messages.back()), R"({"role":"assistant","content":"two"})");
  c.Clear();
  EXPECT_TRUE(c.empty());
}

TEST(ConversationTest, CompletionIsTheLastTextWithABound) {
  Conversation c;
  ChatSettings s;
  c.AddUser("one");
  c.AddUser("Once upon");
  const GenerationRequest request = c.CompletionRequest(s);
  EXPECT_EQ(std::get<std::string>(request.prompts.at(0)), "Once upon");
  EXPECT_EQ(request.max_tokens, kCompletionTokensDefault);
  ASSERT_TRUE(s.Set("max_tokens", "5"));
  EXPECT_EQ(c.CompletionRequest(s).max_tokens, 5);
}

TEST(ConversationTest, TranscriptIsWhatTheApiTakes) {
  Conversation c;
  ChatSettings s;
  ASSERT_TRUE(s.Set("seed", "7"));
  s.system = "Be brief.";
  c.AddUser("Hi \"there\"");
  EXPECT_EQ(DumpJson(c.Transcript("m.gguf", s)),
            R"({"model":"m.gguf","settings":{"seed":7},"messages":[{"role":"system","content":"Be brief."},)"
            R"({"role":"user","content":"Hi \"there\""}]})");
}

// ---- the terminal --------------------------------------------------------------------------------------------------

TEST(ScreenTest, ModelTextCannotSteerTheTerminal) {
  EXPECT_EQ(SafeForTerminal("plain\n\ttext é 🙂"), "plain\n\ttext é 🙂");
  EXPECT_EQ(SafeForTerminal("\x1b]0;title\x07"), "\\x1b]0;title\\x07");
  EXPECT_EQ(SafeForTerminal("a\rb\x7f"), "a\\x0db\\x7f");
  EXPECT_EQ(SafeForTerminal("\xC2\x9B" "31m"), "\\x9b31m");  // CSI of eight bits
  EXPECT_EQ(SafeForTerminal("\xC2\xA0"), "\xC2\xA0");        // a no-break space is none
}

TEST(ScreenTest, PipesGetTheBytesAndOneLineBreak) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Screen screen(ends[1], ends[1]);
  screen.Write("a\x1b[31m");
  screen.EndLine();
  screen.EndLine();
  char read_back[64];
  EXPECT_EQ(std::string_view(read_back, static_cast<size_t>(read(ends[0], read_back, sizeof(read_back)))), "a\x1b[31m\n");
  close(ends[0]);
  close(ends[1]);
}

TEST(ScreenTest, FullDiskIsRemembered) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  Screen screen(full, full);
  screen.Write("text");
  ASSERT_FALSE(screen.status());
  EXPECT_THAT(screen.status().error().message, HasSubstr("cannot write"));
  close(full);
}

TEST(HistoryFileTest, KeepsLinesForTheOwnerOnly) {
  const Folder folder;
  const std::string path = folder.At("state/headrace/history");
  HistoryFile(path).Append("first");
  HistoryFile again(path);
  again.Append("second");
  again.Append("two\nlines");
  again.Append(std::string(kHistoryLineBytesMax + 1, 'x'));
  EXPECT_THAT(HistoryFile(path).Load(), ElementsAre("first", "second"));
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(stat(folder.At("state/headrace").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST(HistoryFileTest, IsCutToTheNewest) {
  const Folder folder;
  const std::string path = folder.At("history");
  std::string text;
  for (size_t i = 0; i < kHistoryLinesMax + 5; ++i) text += "line " + std::to_string(i) + "\n";
  ASSERT_TRUE(WriteFileAtomically(path, text));
  const auto lines = HistoryFile(path).Load();
  ASSERT_EQ(lines.size(), kHistoryLinesMax);
  EXPECT_EQ(lines.front(), "line 5");
  EXPECT_LT(std::filesystem::file_size(path), text.size());
}

TEST(HistoryFileTest, NoPathNoHistory) {
  HistoryFile none("");
  none.Append("x");
  EXPECT_TRUE(none.Load().empty());
}

// ---- answers -------------------------------------------------------------------------------------------------------

class AnswererTest : public ::testing::Test {
 protected:
  void Load(const std::string& script) {
    const std::string path = folder_.At("script.json");
    std::ofstream(path) << script;
    ServeOptions options;
    options.model = "script:" + path;
    auto loaded = Answerer::Load(options, clock_);
    ASSERT_TRUE(loaded) << loaded.error().message;
    answerer_ = std::move(*loaded);
  }
  Result<Answer> Ask(const std::string& text, const std::function<bool()>& stop = [] { return false; }) {
    Conversation c;
    c.AddUser(text);
    shown_.clear();
    return answerer_->Ask(c.ChatRequest(settings_), [this](std::string_view piece) { shown_ += piece; }, stop);
  }

  Folder folder_;
  SystemClock clock_;
  ChatSettings settings_;
  std::string shown_;
  std::unique_ptr<Answerer> answerer_;
};

TEST_F(AnswererTest, ShowsWholeCharactersAndCounts) {
  Load(R"({"step_ms": 0, "replies": [{"pieces": ["It", " is", " süß"]}]})");
  const auto answer = Ask("What?");
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->text, "It is süß");
  EXPECT_EQ(shown_, answer->text);
  EXPECT_EQ(answer->end, EndReason::kStop);
  EXPECT_GT(answer->prompt_tokens, 5);
  EXPECT_GE(answer->generated_tokens, 3);
  EXPECT_THAT(RatesOf(*answer), HasSubstr("first token"));
  EXPECT_EQ(WhyCut(*answer, answerer_->tokens_max(), true), "");
}

TEST_F(AnswererTest, StopsAndAnswersAgain) {
  Load(R"({"step_ms": 1, "replies": [{"match": "short", "pieces": ["ok"]}, {"pieces": ["on", " and"], "repeat": 1000}]})");
  for (int round = 0; round < 20; ++round) {  // more than may wait inside the engine
    const auto stopped = Ask("long", [this] { return !shown_.empty(); });
    ASSERT_TRUE(stopped) << stopped.error().message;
    EXPECT_EQ(stopped->end, EndReason::kNone);
    EXPECT_FALSE(stopped->text.empty());
  }
  EXPECT_EQ(Ask("short")->text, "ok");
}

TEST_F(AnswererTest, FaultIsAnError) {
  Load(R"({"step_ms": 0, "replies": [{"pieces": ["one", "two"], "fault_at": 1}]})");
  EXPECT_FALSE(Ask("x"));
  EXPECT_EQ(shown_, "one");
}

TEST_F(AnswererTest, FullContextSaysWhatToDo) {
  Load(R"({"context": 64, "step_ms": 0, "replies": [{"pieces": ["a", "b"], "repeat": 100}]})");
  const auto cut = Ask("x");
  ASSERT_TRUE(cut) << cut.error().message;
  EXPECT_EQ(cut->end, EndReason::kLength);
  EXPECT_THAT(WhyCut(*cut, answerer_->tokens_max(), true), HasSubstr("/clear"));
  EXPECT_THAT(WhyCut(*cut, answerer_->tokens_max(), false), HasSubstr("--ctx"));
  const auto refused = Ask(std::string(100, 'x'));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kContextLength);
  EXPECT_THAT(ErrorText(refused.error(), true), HasSubstr("/clear"));
}

TEST_F(AnswererTest, MaxTokensIsNotAFullContext) {
  Load(R"({"step_ms": 0, "replies": [{"pieces": ["a", "b"], "repeat": 100}]})");
  settings_.max_tokens = 3;
  const auto cut = Ask("x");
  ASSERT_TRUE(cut);
  EXPECT_THAT(WhyCut(*cut, answerer_->tokens_max(), true), HasSubstr("max_tokens"));
}

}  // namespace
}  // namespace headrace
