// Goal: what the C interface promises: panics stay inside, nothing can be freed.
#include "text/shim.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(Shim, PanicBecomesAStatus) {
  ShimBuffer err;
  EXPECT_EQ(ts_test_panic(err.raw()), TS_PANIC);
  EXPECT_TRUE(err.view().contains("on purpose"));
  EXPECT_EQ(ShimError(TS_PANIC, err, ErrorCode::kInvalidArgument).code, ErrorCode::kInternal);
  EXPECT_EQ(ts_test_panic(nullptr), TS_PANIC);
}

TEST(Shim, FreeingNothing) {
  ts_buf_free(nullptr);
  ts_ids_free(nullptr);
  ts_tokenizer_free(nullptr);
  ts_template_free(nullptr);
  ts_matcher_free(nullptr);
}

}  // namespace
}  // namespace headrace
