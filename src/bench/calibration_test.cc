// Goal: the fit finds the costs that made the times, what is measured on a small model is written as a file that reads
// back, and a file that is none is refused.
#include "bench/calibration.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/seeded_llama.h"

namespace headrace {
namespace {

TEST(CalibrationTest, FindsTheCostsThatMadeTheTimes) {
  const StepCostConstants truth{.step_us = 1500,
                                .prompt_row_us = 350,
                                .decode_row_us = 550,
                                .context_token_ns = 400,
                                .prompt_us = 2000,
                                .prompt_context_ns = 800,
                                .prompt_pair_ns = 90,
                                .wide_decode_row_us = 60};
  std::vector<CalibrationPoint> points;
  for (int32_t rows : {0, 16, 256}) {
    for (int32_t decodes : {1, 4, 32}) {
      for (int32_t context : {10, 1000}) {
        CalibrationPoint p{.prompt_rows = rows, .position = context, .decodes = decodes, .context = context};
        if (rows > 0) p.load.Add(context, rows, context + rows);
        for (int32_t i = 0; i < decodes; ++i) p.load.Add(context, 1, context);
        p.median_us = static_cast<double>(StepCost::Make(truth)->Of(p.load)) / kNsPerUs;
        points.push_back(p);
      }
    }
  }
  const StepCostConstants found = FitStepCost(points);
  EXPECT_NEAR(found.step_us, 1500, 1);
  EXPECT_NEAR(found.prompt_row_us, 350, 0.5);
  EXPECT_NEAR(found.decode_row_us, 550, 0.5);
  EXPECT_NEAR(found.context_token_ns, 400, 0.5);
  EXPECT_NEAR(found.prompt_us, 2000, 2);
  EXPECT_NEAR(found.prompt_context_ns, 800, 2);
  EXPECT_NEAR(found.prompt_pair_ns, 90, 0.5);
  EXPECT_NEAR(found.wide_decode_row_us, 60, 0.5);
}

TEST(CalibrationTest, MeasuresASmallModelAndWritesAFileThatReadsBack) {
  const auto bytes = BuildSeededLlama({.layers = 1,
                                       .width = 64,
                                       .ffn_width = 96,
                                       .heads = 2,
                                       .kv_heads = 1,
                                       .head_dim = 32,
                                       .vocab_size = 100,
                                       .context = 512});
  const auto file = OpenSeededLlama(bytes);
  const SystemClock clock;
  auto calibration = Calibration::Open(*file, {.threads = 2, .repeats = 2}, clock);
  ASSERT_TRUE(calibration) << calibration.error().message;
  const auto report = (*calibration)->Run([](const std::string&) {});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_GT(report->points.size(), 8u);
  for (const CalibrationPoint& p : report->points) {
    EXPECT_GT(p.median_us, 0);
    EXPECT_LE(p.position + p.prompt_rows, 512);
  }
  EXPECT_NE(CalibrationAsMarkdown(*report).find("| prompt rows |"), std::string::npos);
  const auto read = ParseStepCost(FormatStepCost(report->file));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->constants.step_us, report->file.constants.step_us);
  EXPECT_EQ(read->constants.prompt_pair_ns, report->file.constants.prompt_pair_ns);
  EXPECT_EQ(read->threads, 2);
  EXPECT_EQ(read->error_p90, report->file.error_p90);
}

}  // namespace
}  // namespace headrace
