// Goal: what a person types becomes the right message, command or refusal; settings keep their ranges; a conversation
// keeps alternating; nothing a model writes can steer the terminal; answers from a scripted model arrive, stop and fail
// as they should.
#include "chat/chat.h"

#include <fcntl.h>
#include <fmt/format.h>
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
#include "config/option_table.h"
#include "config/option_value.h"
#include "server/engine_request.h"

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
  const ChatInput longer = reader.Take(std::string(kMessageBytesMax + 1, 'x'));
  EXPECT_EQ(longer.kind, Kind::kRefused);
  EXPECT_EQ(longer.text, "a message has at most 16 MiB; this one was dropped");
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
  for (const char* word : {"/set", "/show", "/clear", "/save", "/help", "/bye"})
    EXPECT_THAT(CommandHelp(), HasSubstr(word));
}

GenerationRequest Applied(const ChatSettings& settings) {
  GenerationRequest request;
  settings.Apply(&request);
  return request;
}

TEST(ChatSettingsTest, TakesValuesInRangeOnly) {
  ChatSettings s;
  EXPECT_TRUE(s.Set("temperature", "0.25"));
  EXPECT_TRUE(s.Set("top_k", "40"));
  EXPECT_TRUE(s.Set("seed", "-1"));
  EXPECT_EQ(Applied(s).sampling.seed, UINT64_MAX);
  for (const char* bad : {"2.1", "-1", "nan", "inf", "1x", ""}) EXPECT_FALSE(s.Set("temperature", bad)) << bad;
  EXPECT_EQ(Applied(s).sampling.temperature, 0.25);
  EXPECT_FALSE(s.Set("max_tokens", "0"));
  EXPECT_FALSE(s.Set("max_tokens", "1.5"));
  EXPECT_TRUE(s.Set("temperature", "default"));
  EXPECT_FALSE(Applied(s).sampling.given.temperature);
  EXPECT_THAT(s.Set("top-p", "1").error().message, HasSubstr("Near: top_p"));
}

TEST(ChatSettingsTest, EveryFieldOfSamplingReachesTheRequest) {
  ChatSettings s;
  for (const auto& [name, value] :
       std::initializer_list<std::pair<const char*, const char*>>{{"temperature", "0.5"},
                                                                  {"top_k", "7"},
                                                                  {"top_p", "0.25"},
                                                                  {"min_p", "0.125"},
                                                                  {"seed", "9"},
                                                                  {"presence_penalty", "-0.5"},
                                                                  {"frequency_penalty", "0.5"},
                                                                  {"max_tokens", "11"},
                                                                  {"repetition_penalty", "1.25"},
                                                                  {"stop", "END"},
                                                                  {"system", "Be brief."}})
    ASSERT_TRUE(s.Set(name, value)) << name;
  const GenerationRequest r = Applied(s);
  const SamplingParams p = ToSamplingParams(r.sampling, 3);
  EXPECT_THAT((std::vector<float>{p.temperature, p.top_p, p.min_p, p.presence_penalty, p.frequency_penalty,
                                  p.repetition_penalty}),
              ElementsAre(0.5f, 0.25f, 0.125f, -0.5f, 0.5f, 1.25f));
  EXPECT_EQ(p.top_k, 7);
  EXPECT_EQ(p.seed, 3u) << "the drawn one";
  EXPECT_EQ(r.sampling.seed, 9u);
  EXPECT_EQ(r.max_tokens, 11);
  EXPECT_THAT(r.stop, ElementsAre("END"));
  for (const std::string& name : ChatSettingNames()) {
    EXPECT_THAT(s.AsText(), HasSubstr("  " + name + " "));
    EXPECT_TRUE(s.AsJson().contains(name)) << name;
    EXPECT_THAT(CommandHelp(), HasSubstr(name));
    EXPECT_TRUE(s.Set(name, "default"));
  }
  EXPECT_TRUE(s.AsJson().empty());
}

TEST(ChatSettingsTest, StopStringsAreTextOrJson) {
  ChatSettings s;
  const auto stops = [&](const char* typed) {
    EXPECT_TRUE(s.Set("stop", typed)) << typed;
    return Applied(s).stop;
  };
  EXPECT_THAT(stops("two words"), ElementsAre("two words"));
  EXPECT_THAT(stops("[INST]"), ElementsAre("[INST]"));
  EXPECT_THAT(stops(R"("\n")"), ElementsAre("\n"));
  EXPECT_THAT(stops(R"(["a","default"])"), ElementsAre("a", "default"));
  EXPECT_THAT(s.AsText(), HasSubstr(R"(["a","default"])"));
  EXPECT_THAT(s.Set("stop", R"([""])").error().message, HasSubstr("'stop[0]' is empty"));
  EXPECT_THAT(s.Set("stop", "[1]").error().message, HasSubstr("'stop[0]' must be a string"));
  EXPECT_FALSE(s.Set("stop", "a\xFF"));
  EXPECT_EQ(Applied(s).stop.size(), 2u) << "a refused value changes nothing";
}

TEST(ChatSettingsTest, ErrorsAreTheApis) {
  for (const auto& [name, value] :
       std::initializer_list<std::pair<const char*, const char*>>{{"temperature", "2.5"},
                                                                  {"top_p", "7"},
                                                                  {"min_p", "-1"},
                                                                  {"presence_penalty", "3"},
                                                                  {"frequency_penalty", "-3"},
                                                                  {"repetition_penalty", "0"},
                                                                  {"top_k", "-2"},
                                                                  {"seed", "1.5"},
                                                                  {"max_tokens", "0"}}) {
    const auto by_api = ParseChatRequest(
        std::string(R"({"model":"m","messages":[{"role":"user","content":"x"}],")") + name + "\":" + value + "}", {});
    const Status by_chat = ChatSettings().Set(name, value);
    ASSERT_FALSE(by_api || by_chat) << name;
    EXPECT_EQ(by_chat.error().message, by_api.error().message);
    EXPECT_EQ(by_chat.error().field, name);
  }
}

// The table of options has ranges too, so that `config check` and the place of a mistake (file, variable) work.
TEST(ChatSettingsTest, RangesOfTheFlagsAreTheApis) {
  int compared = 0;
  for (const OptionSpec& spec : OptionTable()) {
    if (spec.group != OptionGroup::kSampling || spec.value_name == "TEXT") continue;
    ++compared;
    const bool integer = spec.kind == OptionKind::kInteger;
    const auto text = [&](double value, bool top) {
      if (!integer) return fmt::format("{}", value);
      return top && value >= 0x1p63 ? std::string("9223372036854775807")
                                    : fmt::format("{}", static_cast<int64_t>(value));
    };
    const std::string name = FileKey(spec), min = text(spec.min, false), max = text(spec.max, true);
    EXPECT_TRUE(ChatSettings().Set(name, min)) << name;
    EXPECT_TRUE(ChatSettings().Set(name, max)) << name;
    EXPECT_TRUE(CheckOptionValue(spec, {min}, name) && CheckOptionValue(spec, {max}, name)) << name;
    const std::string out_of_range = integer ? "1e30" : fmt::format("{}", spec.max + 1);
    const Status api = ChatSettings().Set(name, out_of_range), flag = CheckOptionValue(spec, {out_of_range}, name);
    ASSERT_FALSE(api || flag) << name;
    EXPECT_THAT(api.error().message, HasSubstr(fmt::format("from {} to {}", min, max)));
    if (!integer) EXPECT_THAT(flag.error().message, HasSubstr(fmt::format("must be a number from {} to {}", min, max)));
  }
  EXPECT_EQ(compared, 9);
}

TEST(ChatSettingsTest, FromOptionsChecksThem) {
  RunOptions options;
  options.settings = {{"temperature", 0}, {"max_tokens", 7}, {"stop", {"a", "b"}}};
  options.system = "Be brief.";
  const auto s = ChatSettings::From(options);
  ASSERT_TRUE(s);
  EXPECT_EQ(Applied(*s).sampling.temperature, 0);
  EXPECT_EQ(s->max_tokens(), 7);
  EXPECT_THAT(Applied(*s).stop, ElementsAre("a", "b"));
  EXPECT_THAT(s->AsText(), HasSubstr("Be brief."));
  options.settings["top_p"] = 3;
  EXPECT_EQ(ChatSettings::From(options).error().field, "top_p");
  options.settings = {{"max_tokens", -1}};
  EXPECT_EQ(ChatSettings::From(options).error().field, "max_tokens");
  options.settings = {{"stop", {std::string("a\xFF")}}};
  EXPECT_EQ(ChatSettings::From(options).error().field, "stop");
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
  ASSERT_TRUE(s.Set("system", "Be brief."));
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
  ASSERT_TRUE(s.Set("system", "Be brief."));
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
  EXPECT_EQ(SafeForTerminal("\xC2\x9B"
                            "31m"),
            "\\x9b31m");                               // CSI of eight bits
  EXPECT_EQ(SafeForTerminal("\xC2\xA0"), "\xC2\xA0");  // a no-break space is none
}

TEST(ScreenTest, PipesGetTheBytesAndOneLineBreak) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Screen screen(ends[1], ends[1]);
  screen.Write("a\x1b[31m");
  screen.EndLine();
  screen.EndLine();
  char read_back[64];
  EXPECT_EQ(std::string_view(read_back, static_cast<size_t>(read(ends[0], read_back, sizeof(read_back)))),
            "a\x1b[31m\n");
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
  struct stat info{};
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

TEST(HistoryFileTest, AFileThatNobodyCutIsStartedAnew) {
  const Folder folder;
  const std::string path = folder.At("history");
  ASSERT_TRUE(WriteFileAtomically(path, ""));
  std::filesystem::resize_file(path, kHistoryFileBytesMax + 1);
  EXPECT_TRUE(HistoryFile(path).Load().empty());
  EXPECT_EQ(std::filesystem::file_size(path), 0u);
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
  Load(
      R"({"step_ms": 1, "replies": [{"match": "short", "pieces": ["ok"]}, {"pieces": ["on", " and"], "repeat": 1000}]})");
  for (int round = 0; round < 20; ++round) {  // more than may wait inside the engine
    const auto stopped = Ask("long", [this] { return !shown_.empty(); });
    ASSERT_TRUE(stopped) << stopped.error().message;
    EXPECT_EQ(stopped->end, EndReason::kNone);
    EXPECT_FALSE(stopped->text.empty());
  }
  EXPECT_EQ(Ask("short")->text, "ok");
}

TEST_F(AnswererTest, StopStringsReachTheEngine) {
  Load(R"({"step_ms": 0, "replies": [{"pieces": ["The", " quick", " br", "own", " fox"]}]})");
  ASSERT_TRUE(settings_.Set("stop", R"(["never","own f"])"));
  const auto answer = Ask("x");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->text, "The quick br");
  EXPECT_EQ(shown_, answer->text) << "no part of the stop string was shown";
  EXPECT_EQ(answer->end, EndReason::kStop);
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
  ASSERT_TRUE(settings_.Set("max_tokens", "3"));
  const auto cut = Ask("x");
  ASSERT_TRUE(cut);
  EXPECT_THAT(WhyCut(*cut, answerer_->tokens_max(), true), HasSubstr("max_tokens"));
}

}  // namespace
}  // namespace headrace
