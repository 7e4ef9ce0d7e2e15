// Goal: no text can break an event: each of its lines gets its own field, and every event ends with an empty line.
#include "net/sse.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(SseTest, FramesEventsAndComments) {
  EXPECT_EQ(SseData("{\"a\":1}"), "data: {\"a\":1}\n\n");
  EXPECT_EQ(SseData("[DONE]"), "data: [DONE]\n\n");
  EXPECT_EQ(SseEvent("message_stop", "{}"), "event: message_stop\ndata: {}\n\n");
  EXPECT_EQ(SseComment("ping"), ": ping\n\n");
}

TEST(SseTest, LineEndsInsideTextStartNewLinesOfTheSameField) {
  EXPECT_EQ(SseData("a\nb\r\nc\rd"), "data: a\ndata: b\ndata: c\ndata: d\n\n");
  EXPECT_EQ(SseComment("a\ndata: b"), ": a\n: data: b\n\n");
  EXPECT_EQ(SseData(""), "data: \n\n");
}

}  // namespace
}  // namespace headrace
