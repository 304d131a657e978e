// The drawing of what ran when, and what is no timeline.
#include "harness/report/timeline_drawing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fsdp_cts {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Two streams over 100 us; a race on the second at 50.
Json traced() {
  const Json rank{
      {"rank", 1},
      {"lanes",
       {{{"name", "default stream of sim:1"}, {"spans", {{1000.0, 50.0, "compute", "aten::mm"}}}},
        {{"name", "all_gather_stream"}, {"spans", {{1050.0, 50.0, "collective", "all_gather <1>"}}}}}},
      {"marks", {{1, 1050.0, "stream_race", "reads & nothing orders"}}},
      {"not_shown", 7}};
  return {{"divergence", Json::object()},
          {"timeline", {{"machine", "slow"}, {"ranks", Json::array({rank})}}}};
}

Json found() {
  return {{"divergence",
           {{"earlier", {{"operation", "aten::add"}, {"timeline", "stream <1>"}, {"access", "write"}}},
            {"later", {{"operation", "memcpy"}, {"timeline", "host"}, {"access", "read"}}},
            {"missing", "the host synchronizes"}}}};
}

TEST(TimelineDrawing, ALanePerStreamAndAMarkWhereNothingOrders) {
  const std::string html = timeline_of(traced());
  // Labels take 260 pixels, 100 us the 900 after them; lanes are 20 high.
  EXPECT_THAT(html, HasSubstr("<text x=0 y=11>default stream of sim:1</text>"));
  EXPECT_THAT(
      html,
      HasSubstr("<rect x=260.0 y=0 width=450.0 height=14 fill=\"hsl(145 40% 50%)\"><title>aten::mm: 50.000"));
  EXPECT_THAT(
      html, HasSubstr("<rect x=710.0 y=20 width=450.0 height=14 fill=\"hsl(215 60% 55%)\"><title>all_gather "
                      "&lt;1&gt;"));
  EXPECT_THAT(
      html, HasSubstr("<path class=found d=\"M710.0 18v20\"><title>stream_race: reads &amp; nothing orders"));
  EXPECT_THAT(html, HasSubstr("rank 1, 1000.0 to 1100.0 us; 7 more operators are not shown"));
  EXPECT_THAT(html, HasSubstr("virtual time of slow"));
}

TEST(TimelineDrawing, AFindingAloneIsDrawnWithoutTimes) {
  const std::string html = timeline_of(found());
  EXPECT_THAT(html, HasSubstr("stream &lt;1&gt;</text>"));
  EXPECT_THAT(html, HasSubstr(">aten::add writes</text>"));
  EXPECT_THAT(html, HasSubstr(">memcpy reads</text>"));
  EXPECT_THAT(html, HasSubstr("d=\"M560 7L860 27\"><title>missing: the host synchronizes"));
  EXPECT_THAT(html, Not(HasSubstr("virtual time")));
}

TEST(TimelineDrawing, OneStreamIsOneLane) {
  Json record = found();
  record["divergence"]["later"]["timeline"] = record["divergence"]["earlier"]["timeline"];
  EXPECT_THAT(timeline_of(record), HasSubstr("d=\"M560 7L860 7\""));
}

TEST(TimelineDrawing, WhatIsNoTimelineIsNotDrawn) {
  EXPECT_EQ(timeline_of({{"divergence", Json::object()}}), "");
  EXPECT_EQ(timeline_of(Json::object()), "");
  for (const char* text :
       {"3", "null", "[]", R"({"ranks": [{}], "machine": ""})", R"({"ranks": [], "machine": ""})",
        R"({"ranks": [{"rank": 0, "lanes": [], "marks": [], "not_shown": 0}], "machine": "x"})",
        R"({"ranks": [{"rank": 0, "lanes": [{"name": "a", "spans": [["x"]]}], "marks": [],
                              "not_shown": 0}], "machine": "x"})"}) {
    EXPECT_EQ(timeline_of({{"divergence", Json::object()}, {"timeline", Json::parse(text)}}), "") << text;
  }
  Json record = found();
  record["divergence"]["earlier"] = "aten::add";
  EXPECT_EQ(timeline_of(record), "");
}

TEST(TimelineDrawing, AMarkOfNoLaneIsNotDrawn) {
  Json record = traced();
  record["timeline"]["ranks"][0]["marks"] = Json::array({Json::array({9, 1050.0, "stream_race", "x"})});
  EXPECT_THAT(timeline_of(record), Not(HasSubstr("class=found")));
}

}  // namespace
}  // namespace fsdp_cts
