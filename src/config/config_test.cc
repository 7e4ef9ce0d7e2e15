// Goal: every option can be set in every layer, the nearer layer wins and is named, and what is wrong is refused with
// the place and near names.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "config/config_file.h"
#include "config/near_names.h"
#include "config/option_table.h"
#include "config/option_value.h"
#include "config/settings.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

EnvironmentReader Variables(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) -> const char* {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  };
}

TEST(OptionTableTest, NamesAreUniqueAndDefaultsAreSound) {
  std::set<std::string> names;
  for (const OptionSpec& spec : OptionTable()) {
    EXPECT_TRUE(names.insert(std::string(spec.name)).second) << spec.name;
    for (const std::string_view alias : Words(spec.aliases))
      EXPECT_TRUE(names.insert(std::string(alias)).second) << alias;
    EXPECT_FALSE(spec.help.empty()) << spec.name;
    EXPECT_NE(spec.commands, 0u) << spec.name;
    EXPECT_EQ(spec.kind == OptionKind::kSwitch, spec.value_name.empty()) << spec.name;
    EXPECT_EQ(spec.kind == OptionKind::kChoice, !spec.choices.empty()) << spec.name;
    if (spec.default_value.empty()) continue;
    const Status sound = CheckOptionValue(spec, {std::string(spec.default_value)}, "default");
    EXPECT_TRUE(sound) << (sound ? "" : sound.error().message);
  }
}

TEST(OptionTableTest, VllmSpellingsAreAliases) {
  for (const auto& [alias, name] : {std::pair{"max-model-len", "ctx"},
                                    {"max-num-seqs", "max-sequences"},
                                    {"max-num-batched-tokens", "max-batch-tokens"},
                                    {"kv-cache-memory-bytes", "kv-memory"},
                                    {"ssl-certfile", "tls-cert"},
                                    {"ssl-keyfile", "tls-key"},
                                    {"max_batch_tokens", "max-batch-tokens"}}) {
    ASSERT_NE(FindOption(alias), nullptr) << alias;
    EXPECT_EQ(FindOption(alias)->name, name);
  }
  EXPECT_EQ(FindOption("max-batch"), nullptr);
  EXPECT_EQ(EnvironmentName(*FindOption("kv-memory")), "HEADRACE_KV_MEMORY");
  EXPECT_EQ(FileKey(*FindOption("kv-memory")), "kv_memory");
}

TEST(OptionValueTest, Sizes) {
  EXPECT_EQ(ParseBytes("1024"), 1024u);
  EXPECT_EQ(ParseBytes("2GiB"), uint64_t{2} << 30);
  EXPECT_EQ(ParseBytes("512MB"), 512'000'000u);
  EXPECT_EQ(ParseBytes("1.5 GiB"), uint64_t{3} << 29);
  EXPECT_EQ(ParseBytes("2g"), uint64_t{2} << 30);
  EXPECT_EQ(ParseBytes("7B"), 7u);
  for (const char* bad : {"", "GiB", "-1", "1XB", "nan", "inf", "1e300", "2GiBx", "0x10", "2 G i B"})
    EXPECT_FALSE(ParseBytes(bad)) << bad;
}

TEST(OptionValueTest, Times) {
  EXPECT_EQ(ParseSeconds("30"), 30.0);
  EXPECT_EQ(ParseSeconds("500ms"), 0.5);
  EXPECT_EQ(ParseSeconds("5m"), 300.0);
  EXPECT_EQ(ParseSeconds("1h"), 3600.0);
  for (const char* bad : {"", "s", "-1s", "1d", "nan", "1 0"}) EXPECT_FALSE(ParseSeconds(bad)) << bad;
}

TEST(OptionValueTest, TokensAsVllmReadsThem) {
  EXPECT_EQ(ParseTokens("8192"), 8192);
  EXPECT_EQ(ParseTokens("1k"), 1000);
  EXPECT_EQ(ParseTokens("1K"), 1024);
  EXPECT_EQ(ParseTokens("25.6k"), 25600);
  EXPECT_EQ(ParseTokens("1M"), 1 << 20);
  EXPECT_EQ(ParseTokens("auto"), 0);
  EXPECT_EQ(ParseTokens("-1"), 0);
  for (const char* bad : {"", "k", "1.5", "1.0001k", "1g", "1kb", "nan", "infK", "1e300k"})
    EXPECT_FALSE(ParseTokens(bad)) << bad;
}

TEST(OptionValueTest, NamesAreNeitherEmptyNorUnprintable) {
  const auto check = [](std::vector<std::string> names) {
    return CheckOptionValue(*FindOption("served-model-name"), names, "--served-model-name");
  };
  EXPECT_TRUE(check({"org/m", "it's \"x\"", "模型"}));
  for (const std::string& bad : {std::string(), std::string("a\nb"), std::string("\x7f"), std::string("a\0b", 3)})
    EXPECT_FALSE(check({"m", bad})) << bad;
}

TEST(OptionValueTest, WrongValuesNameFlagAndRange) {
  const auto message = [](const char* option, const char* value) {
    const Status status = CheckOptionValue(*FindOption(option), {value}, std::string("--") + option);
    return status ? std::string("accepted") : status.error().message;
  };
  EXPECT_EQ(message("port", "70000"), "--port: '70000' must be a whole number from 0 to 65535");
  EXPECT_THAT(message("port", "8080x"), HasSubstr("a whole number"));
  EXPECT_THAT(message("ctx", "8kB"), HasSubstr("a whole number, such as 8192, 8K or auto"));
  EXPECT_THAT(message("max-batch-tokens", "auto"), HasSubstr("a whole number from 1 to 65536"));
  EXPECT_THAT(message("top-p", "1.5"), HasSubstr("a number from 0 to 1"));
  EXPECT_THAT(message("temperature", "nan"), HasSubstr("a number"));
  EXPECT_THAT(message("isa", "sse"), HasSubstr("one of reference, avx2, avxvnni, avx512, amx, neon"));
  EXPECT_EQ(message("isa", "amx"), "accepted");
  EXPECT_THAT(message("kv-memory", "lots"), HasSubstr("2GiB"));
  EXPECT_THAT(message("insecure", "maybe"), HasSubstr("true or false"));
  EXPECT_EQ(message("port", "0"), "accepted");
}

TEST(OptionValueTest, EveryRangeEndsWhereItSays) {
  int ranges = 0;
  for (const OptionSpec& spec : OptionTable()) {
    if (spec.kind != OptionKind::kInteger && spec.kind != OptionKind::kTokens && spec.kind != OptionKind::kNumber &&
        spec.kind != OptionKind::kSeconds)
      continue;
    ++ranges;
    ASSERT_LT(spec.min, spec.max) << spec.name;
    const std::string flag = "--" + std::string(spec.name);
    const auto check = [&](double value) { return CheckOptionValue(spec, {fmt::format("{}", value)}, flag); };
    if (spec.max >= 0x1p53) {  // the type is the range
      EXPECT_THAT(CheckOptionValue(spec, {"9223372036854775808"}, flag).error().message,
                  HasSubstr(flag + ": '9223372036854775808' must be a whole number"));
      continue;
    }
    for (const double inside : {spec.min, spec.max}) EXPECT_TRUE(check(inside)) << flag << " " << inside;
    const Status above = check(spec.max + 1);
    ASSERT_FALSE(above) << flag;
    EXPECT_EQ(above.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(above.error().field, spec.name);
    EXPECT_THAT(above.error().message, HasSubstr(flag + ": "));
    EXPECT_THAT(above.error().message, HasSubstr(fmt::format("from {} to {}", spec.min, spec.max)));
  }
  EXPECT_GT(ranges, 10);
}

TEST(OptionValueTest, TextsAreBounded) {
  const auto check = [](const char* option, const std::vector<std::string>& texts) {
    return CheckOptionValue(*FindOption(option), texts, std::string("--") + option);
  };
  EXPECT_TRUE(check("system", {std::string(kOptionTextBytesMax, 'x')}));
  const Status longer = check("system", {std::string(kOptionTextBytesMax + 1, 'x')});
  ASSERT_FALSE(longer);
  EXPECT_EQ(longer.error().field, "system");
  EXPECT_THAT(longer.error().message, HasSubstr("--system: 'xxx"));
  EXPECT_THAT(longer.error().message, HasSubstr("must be at most 65536 bytes long"));
  EXPECT_LT(longer.error().message.size(), 200u);
  EXPECT_TRUE(check("served-model-name", std::vector<std::string>(kOptionTextsMax, "m")));
  const Status more = check("served-model-name", std::vector<std::string>(kOptionTextsMax + 1, "m"));
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().message, "--served-model-name: at most 256 values are accepted");
}

TEST(SettingsTest, FlagOverEnvironmentOverFileOverDefault) {
  const auto file = ParseConfigFile("port = 1\nhost = \"file\"\nctx = 100\n", "h.toml");
  ASSERT_TRUE(file) << file.error().message;
  const auto settings = Settings::Resolve(
      {{"port", {"3"}}}, Variables({{"HEADRACE_PORT", "2"}, {"HEADRACE_HOST", "env"}, {"HEADRACE_ISA", ""}}), &*file);
  ASSERT_TRUE(settings) << settings.error().message;
  EXPECT_EQ(settings->Integer("port"), 3);
  EXPECT_EQ(settings->Get("port").place, "--port");
  EXPECT_EQ(settings->Text("host"), "env");
  EXPECT_EQ(settings->Get("host").place, "HEADRACE_HOST");
  EXPECT_EQ(settings->Integer("ctx"), 100);
  EXPECT_EQ(settings->Get("ctx").place, "h.toml, line 3");
  EXPECT_EQ(settings->Integer("max-sequences"), 32);
  EXPECT_EQ(settings->Get("max-sequences").origin, SettingOrigin::kDefault);
  EXPECT_FALSE(settings->Has("isa")) << "an empty variable is not set";
}

TEST(SettingsTest, EveryOptionOfServeCanBeSetByVariableAndFile) {
  for (const OptionSpec& spec : OptionTable()) {
    if ((spec.commands & kForServe) == 0 || spec.flag_only) continue;
    const std::string value = spec.kind == OptionKind::kSwitch   ? "true"
                              : spec.kind == OptionKind::kChoice ? std::string(Words(spec.choices).back())
                                                                 : "7";
    const auto by_variable = Settings::Resolve({}, Variables({{EnvironmentName(spec), value}}), nullptr);
    ASSERT_TRUE(by_variable) << spec.name;
    EXPECT_THAT(by_variable->Get(spec.name).texts, ElementsAre(value));
    if (spec.kind == OptionKind::kSecret) continue;
    const auto file = ParseConfigFile(FileKey(spec) + " = \"" + value + "\"\n", "h.toml");
    ASSERT_TRUE(file) << spec.name;
    EXPECT_THAT(Settings::Resolve({}, Variables({}), &*file)->Get(spec.name).texts, ElementsAre(value));
  }
}

TEST(SettingsTest, ErrorsAndOriginsHaveTheSpellingThatWasTyped) {
  const auto bad = Settings::Resolve({{"ctx", {"x"}}}, Variables({}), nullptr, {{"ctx", "--max_model_len"}});
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().message, HasSubstr("--max_model_len: 'x'"));
  const auto level = Settings::Resolve({{"log-level", {"warning"}}}, Variables({}), nullptr, {});
  ASSERT_TRUE(level) << level.error().message;
  EXPECT_EQ(level->Text("log-level"), "warn");
}

TEST(SettingsTest, ListsSecretsAndMistakes) {
  const auto settings = Settings::Resolve(
      {}, Variables({{"HEADRACE_SERVED_MODEL_NAME", "a,b,"}, {"HEADRACE_API_KEY", "secret"}}), nullptr);
  EXPECT_THAT(settings->Texts("served-model-name"), ElementsAre("a", "b"));
  EXPECT_EQ(settings->Text("api-key"), "secret");
  const Status longer = CheckOptionValue(*FindOption("api-key"), {std::string(kOptionTextBytesMax + 1, 'k')}, "K");
  EXPECT_THAT(longer.error().message, ::testing::Not(HasSubstr("kk"))) << "a secret is never repeated";
  const auto bad = Settings::Resolve({}, Variables({{"HEADRACE_PORT", "x"}}), nullptr);
  EXPECT_THAT(bad.error().message, HasSubstr("HEADRACE_PORT: 'x'"));
  EXPECT_EQ(bad.error().field, "port");
}

TEST(ConfigFileTest, ReadsEveryKind) {
  const auto file = ParseConfigFile(
      "max-batch-tokens = 64\ninsecure = true\nkv_memory = \"2GiB\"\nrequest_timeout = 1.5\nserved_model_name = "
      "[\"a\", \"b\"]\nmax_model_len = 10\n",
      "h.toml");
  ASSERT_TRUE(file) << file.error().message;
  const auto settings = Settings::Resolve({}, Variables({}), &*file);
  EXPECT_EQ(settings->Integer("max-batch-tokens"), 64);
  EXPECT_TRUE(settings->Switch("insecure"));
  EXPECT_EQ(settings->Bytes("kv-memory"), uint64_t{2} << 30);
  EXPECT_EQ(settings->Number("request-timeout"), 1.5);
  EXPECT_THAT(settings->Texts("served-model-name"), ElementsAre("a", "b"));
  EXPECT_EQ(settings->Integer("ctx"), 10);
}

TEST(ConfigFileTest, MistakesNameLineAndNearKeys) {
  for (const auto& [text, what] : std::vector<std::pair<std::string, std::string>>{
           {"\nprot = 1", "h.toml, line 2: unknown key 'prot'. Near: port"},
           {"port = true", "line 1"},
           {"port = 1.5", "'1.5' must be a whole number"},
           {"port = [1]", "one plain value"},
           {"[serve]\nport = 1", "unknown key 'serve'"},
           {"host = \"a\nb\"", "not TOML"},
           {"ctx = 1\nmax_model_len = 2", "set twice"},
           {"api_key = \"k\"", "a secret"},
           {"yes = true", "only be given on the command line"},
           {"host = 1979-05-27", "one plain value"},
           {"host = 5", "must be a text in quotes"},
           {std::string("a\0 = 1", 6), "not TOML"},
           {"served_model_name = [[1]]", "list of texts"}}) {
    const auto file = ParseConfigFile(text, "h.toml");
    ASSERT_FALSE(file) << text;
    EXPECT_THAT(file.error().message, HasSubstr(what)) << text;
    EXPECT_EQ(file.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(ConfigFileTest, DeeplyNestedTextIsAnError) {
  EXPECT_FALSE(ParseConfigFile("port = " + std::string(100'000, '['), "h.toml"));
  EXPECT_FALSE(ReadConfigFile("/nowhere/h.toml"));
}

TEST(NearNamesTest, EditsAndSharedWords) {
  EXPECT_THAT(NearOptionNames("--prot", {"--port", "--host"}), ElementsAre("--port"));
  EXPECT_THAT(NearOptionNames("max_batch", {"max-batch-tokens", "max-waiting"}), ElementsAre("max-batch-tokens"));
  EXPECT_EQ(NearSentence("zzz", {"--port"}), "");
  EXPECT_EQ(NearSentence("prot", {"port"}), " Near: port.");
}

}  // namespace
}  // namespace headrace
