// Goal: the engine bench measures what it was asked for, leaves out what the context has no room for, counts operations
// and bytes as the model's shape has them, and every form of the report holds all of it.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "bench/engine_bench.h"
#include "bench/engine_report.h"
#include "json/json.h"
#include "model/seeded_llama.h"

namespace headrace {
namespace {

const SeededLlama kShape{.layers = 2,
                         .width = 64,
                         .ffn_width = 96,
                         .heads = 2,
                         .kv_heads = 1,
                         .head_dim = 32,
                         .vocab_size = 100,
                         .context = 256};

EngineBenchOptions SmallOptions() {
  return {.threads = 2,
          .prompts = {5, 70, 257},
          .batches = {1, 3},
          .depths = {0, 65, 200},
          .step_tokens = 32,
          .repeats = 2,
          .probe_bytes = 4 << 20};
}

EngineReport Measured(const SeededLlama& shape, const EngineBenchOptions& options) {
  const auto bytes = BuildSeededLlama(shape);
  const auto file = OpenSeededLlama(bytes);
  const SystemClock clock;
  auto bench = EngineBench::Open(*file, options, clock);
  EXPECT_TRUE(bench) << bench.error().message;
  auto report = (*bench)->Run([](const std::string&) {});
  EXPECT_TRUE(report) << report.error().message;
  return *report;
}

TEST(BenchTest, MeasuresTheRowsThatTheContextHasRoomFor) {
  const EngineReport report = Measured(kShape, SmallOptions());
  std::string rows;
  for (const EngineRow& row : report.rows) {
    rows += std::to_string(row.prompt) + "/" + std::to_string(row.batch) + "/" + std::to_string(row.depth) + " ";
    ASSERT_EQ(row.step_seconds.size(), 2u);
    for (const double s : row.step_seconds) EXPECT_GT(s, 0);
    EXPECT_EQ(row.step_bytes > 0, row.prompt == 0);
  }
  EXPECT_EQ(rows, "5/0/0 70/0/0 0/1/0 0/3/0 0/1/65 ");
  ASSERT_EQ(report.left_out.size(), 2u);
  EXPECT_NE(report.left_out[0].find("257"), std::string::npos);
  EXPECT_EQ(report.probes.read_gb_s.size(), 11u);  // before, between and after
  for (const double rate : report.probes.dot_gop_s) EXPECT_GT(rate, 0);
}

TEST(BenchTest, CostsFollowTheShape) {
  for (const bool tied : {true, false}) {
    SeededLlama shape = kShape;
    shape.tied = tied;
    shape.types = {DType::kQ8_0};
    const auto bytes = BuildSeededLlama(shape);
    const auto file = OpenSeededLlama(bytes);
    const auto config = ReadModelConfig(*file);
    ASSERT_TRUE(config);
    const ModelCost cost = CostOf(*file, *config, KvType::kInt16);
    const int64_t layer = 64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 64 * 96;
    EXPECT_EQ(cost.layer_parameters, 2 * layer);
    EXPECT_EQ(cost.head_parameters, 64 * 100);
    EXPECT_EQ(cost.kv_bytes_per_token, 2 * 2 * (2 * 32 + 4)) << "16-bit numbers, and a scale";
    EXPECT_EQ(cost.Operations(3, 1), 2.0 * (3 * 2 * layer + 6400));
    // An embedding beside a head of its own is not read whole.
    EXPECT_LT(static_cast<double>(cost.step_weight_bytes), 1.2 * (2 * layer + 64 * 112));
  }
}

TEST(BenchTest, EveryFormOfTheReportHoldsEverything) {
  EngineBenchOptions options = SmallOptions();
  options.isa = "reference";
  options.repeats = 1;
  const EngineReport report = Measured(kShape, options);
  const auto json = ParseJson(ReportAsJson(report), {});
  ASSERT_TRUE(json);
  EXPECT_EQ(json->at("rows").size(), report.rows.size());
  EXPECT_EQ(json->at("probes").size(), 3u);
  EXPECT_EQ(json->at("left_out").size(), 2u);
  for (const Json& row : json->at("rows")) {
    EXPECT_GT(row.at("tokens_s").at("median").get<double>(), 0) << DumpJson(row);
    EXPECT_GT(row.at("share_of_int8").get<double>(), 0) << DumpJson(row);
  }
  const std::string csv = ReportAsCsv(report), markdown = ReportAsMarkdown(report);
  EXPECT_EQ(static_cast<size_t>(std::ranges::count(csv, '\n')), 1 + report.rows.size() + 3);
  for (const char* part : {"prompt of 70", "3 sequences, depth 0", "depth 65", "scalar", "Left out"})
    EXPECT_NE(markdown.find(part), std::string::npos) << markdown;
}

TEST(BenchTest, ProbesEveryInstructionSet) {
  const SystemClock clock;
  for (const KernelTable* table : UsableKernels()) {
    EngineBenchOptions options = SmallOptions();
    options.isa = table->name;
    const auto report = ProbeMachine(options, clock);
    ASSERT_TRUE(report) << report.error().message;
    for (const ProbeRounds& p : {report->probes}) {
      EXPECT_GT(p.read_gb_s[0], 0) << table->name;
      EXPECT_GT(p.dot_gop_s[0], 0) << table->name;
      EXPECT_EQ(p.tile_gop_s.empty(), std::string_view(table->name) != "amx");
    }
  }
}

}  // namespace
}  // namespace headrace
