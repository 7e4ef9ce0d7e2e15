// Goal: a slip in a HEADRACE_... variable is said with near names; what the project itself or Kubernetes sets is not
// one.
#include "config/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/foreign_flags.h"
#include "config/settings.h"

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(EnvironmentTest, UnknownVariablesAreSaidWithNearNamesAndWithoutValues) {
  EXPECT_THAT(EnvironmentWarnings({"HEADRACE_PROT=secret"}),
              ElementsAre(AllOf(HasSubstr("HEADRACE_PROT is ignored"), HasSubstr("Near: HEADRACE_PORT"),
                                Not(HasSubstr("secret")))));
  EXPECT_THAT(EnvironmentWarnings({"HEADRACE_MAX_MODEL_LEN=1", "HEADRACE_YES=1"}),
              ElementsAre(HasSubstr("write HEADRACE_CTX"), HasSubstr("--yes can only be given on the command line")));
  EXPECT_THAT(EnvironmentWarnings({"HEADRACE_zzz"}), ElementsAre(HasSubstr("no setting has this name.")));
}

TEST(EnvironmentTest, SettingsAndWhatTheProjectReadsAreKnown) {
  std::vector<std::string> names = {"HEADRACE_CONFIG=f", "HEADRACE_TEST_MODEL=m",  "HEADRACE_SEEDS=3",
                                    "HEADRACE_LAWS=x",   "HEADRACE_HF_ENDPOINT=u", "PATH=/bin",
                                    "HEADRACE="};
  for (const OptionSpec& spec : OptionTable())
    if (!spec.flag_only) names.push_back(EnvironmentName(spec) + "=7");
  EXPECT_THAT(EnvironmentWarnings({names.begin(), names.end()}), IsEmpty());
}

TEST(EnvironmentTest, KubernetesVariablesAreOneLineAndNoSettings) {
  EXPECT_THAT(EnvironmentWarnings({"HEADRACE_PORT=tcp://10.0.0.1:80", "HEADRACE_SERVICE_HOST=10.0.0.1",
                                   "HEADRACE_PORT_80_TCP_ADDR=10.0.0.1"}),
              ElementsAre(AllOf(HasSubstr("3 variables"), HasSubstr("Kubernetes"))));
  const auto settings = Settings::Resolve(
      {}, [](const char* name) { return name == std::string("HEADRACE_PORT") ? "tcp://10.0.0.1:80" : nullptr; },
      nullptr);
  ASSERT_TRUE(settings) << settings.error().message;
  EXPECT_EQ(settings->Integer("port"), 8080);
}

TEST(EnvironmentTest, OnlySoManyLines) {
  EXPECT_EQ(EnvironmentWarnings(std::vector<std::string_view>(1000, "HEADRACE_X=1")).size(), 20u);
}

TEST(ForeignFlagsTest, SwitchesThatSetAnOptionNameOneThatIsThere) {
  for (const auto& [flag, value] :
       {std::pair{"--enable-prefix-caching", "on"}, {"--no_enable_prefix_caching", "off"}}) {
    const ForeignSwitch* const found = FindForeignSwitch(flag);
    ASSERT_NE(found, nullptr) << flag;
    EXPECT_EQ(found->value, value);
    ASSERT_NE(FindOption(found->option), nullptr);
    EXPECT_EQ(FindOption(found->option)->choices, "on off");
  }
  EXPECT_EQ(FindForeignSwitch("--prefix-cache"), nullptr);
}

TEST(ForeignFlagsTest, BothDashesAndNoShortNames) {
  ASSERT_NE(FindForeignFlag("--tensor_parallel_size"), nullptr);
  EXPECT_EQ(FindForeignFlag("--tensor_parallel_size")->accepted, "1");
  EXPECT_EQ(FindForeignFlag("-dtype"), nullptr);
  EXPECT_EQ(FindForeignFlag("--"), nullptr);
  for (const char* name : {"--dtype", "--enforce-eager", "--trust-remote-code"})
    EXPECT_EQ(FindOption(std::string_view(name).substr(2)), nullptr) << name << " would be two things";
}

}  // namespace
}  // namespace headrace
