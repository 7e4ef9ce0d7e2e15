// Goal: model lists and the server's own answers have the shape that clients and probes read (M1-M4).
#include "api/models.h"

#include <gtest/gtest.h>

#include "json/json.h"

namespace headrace {
namespace {

TEST(Models, M1ListAndEmptyList) {
  EXPECT_EQ(ModelsListBody({}), R"({"object":"list","data":[],"models":[]})");
  const ModelCard cards[] = {{.id = "a/b", .created = 5, .max_model_len = 2048, .n_ctx_train = 8192},
                             {.id = "c", .status = ModelStatus::kLoading}};
  EXPECT_EQ(
      ModelsListBody(cards),
      R"({"object":"list","data":[{"id":"a/b","object":"model","created":5,"owned_by":"headrace","root":"a/b","max_model_len":2048,"status":"loaded",)"
      R"("meta":{"n_ctx_train":8192},"architecture":{"input_modalities":["text"],"output_modalities":["text"]}},)"
      R"({"id":"c","object":"model","created":0,"owned_by":"headrace","root":"c","max_model_len":null,"status":"loading",)"
      R"("architecture":{"input_modalities":["text"],"output_modalities":["text"]}}],)"
      R"("models":[{"id":"a/b","name":"a/b","model":"a/b","slug":"a/b","display_name":"a/b"},)"
      R"({"id":"c","name":"c","model":"c","slug":"c","display_name":"c"}]})");
}

TEST(Models, TheModelsOwnSamplingDefaultsAreShown) {
  auto body = ParseJson(ModelBody({.id = "x", .sampling_defaults = {.temperature = 0.6, .top_k = 20}}), {});
  ASSERT_TRUE(body.has_value());
  EXPECT_EQ((*body)["sampling_defaults"].dump(), R"({"temperature":0.6,"top_k":20})");
  EXPECT_FALSE(ParseJson(ModelBody({.id = "x"}), {})->contains("sampling_defaults"));
}

TEST(Models, M2One) {
  auto body = ParseJson(ModelBody({.id = "x\"y", .status = ModelStatus::kFailed}), {});
  ASSERT_TRUE(body.has_value());
  EXPECT_EQ((*body)["id"], "x\"y");
  EXPECT_EQ((*body)["status"], "failed");
}

TEST(Models, M4AliasNamesItsRoot) {
  auto body = ParseJson(ModelBody({.id = "alias", .root = "real"}), {});
  EXPECT_EQ((*body)["root"], "real");
}

TEST(Models, VersionAndHealth) {
  EXPECT_EQ(VersionBody("0.1.0"), R"({"version":"0.1.0"})");
  EXPECT_EQ(HealthBody(HealthState::kOk), R"({"status":"ok"})");
  EXPECT_EQ(HealthBody(HealthState::kLoading), R"({"status":"loading model"})");
  EXPECT_EQ(HealthHttpStatus(HealthState::kOk), 200);
  for (const HealthState state : {HealthState::kLoading, HealthState::kDraining, HealthState::kFailed})
    EXPECT_EQ(HealthHttpStatus(state), 503);
}

}  // namespace
}  // namespace headrace
