// What the drawing of a failed comparison shows, and what is no map.
#include "harness/report/tensor_drawing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fsdp_cts {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// 4 x 3, two rows on each of two ranks; the last element of the first shard and the first of the second differ.
Json two_shards() {
  return {{"shape", {4, 3}}, {"differing", {{5, 2}}}, {"not_shown", 0}, {"held", {{0, 0, 6}, {1, 6, 6}}}};
}

TEST(TensorDrawing, ElementsThatDifferAndBordersOfShards) {
  const std::string html = drawing_of(two_shards());
  // Cells are 9 pixels: element 5 is row 1, column 2, element 6 row 2, column 0.
  EXPECT_THAT(html, HasSubstr("<rect x=18 y=9 width=9 height=9 class=differs/>"));
  EXPECT_THAT(html, HasSubstr("<rect x=0 y=18 width=9 height=9 class=differs/>"));
  EXPECT_THAT(html, HasSubstr("d=\"M0 18h9M9 18h9M18 18h9\"")) << "between rows 1 and 2, nowhere else";
  EXPECT_THAT(html, HasSubstr("rank 1"));
  EXPECT_THAT(html, HasSubstr("[4, 3]"));
  EXPECT_THAT(html, Not(HasSubstr("a cell stands for")));
  EXPECT_THAT(html, Not(HasSubstr("not shown")));
}

TEST(TensorDrawing, ColumnsOnRanks) {
  const std::string html = drawing_of({{"shape", {2, 4}},
                                       {"differing", Json::array()},
                                       {"held", {{0, 0, 2}, {1, 2, 2}, {0, 4, 2}, {1, 6, 2}}}});
  EXPECT_THAT(html, HasSubstr("d=\"M18 0v9M18 9v9\""));
  EXPECT_THAT(html, Not(HasSubstr("class=differs")));
}

TEST(TensorDrawing, OfReplicasTheFirstIsShown) {
  const std::string html =
      drawing_of({{"shape", {2}}, {"differing", Json::array()}, {"held", {{2, 0, 2}, {0, 0, 1}, {1, 1, 1}}}});
  EXPECT_THAT(html, HasSubstr("d=\"M9 0v9\""));
}

TEST(TensorDrawing, AVectorIsBrokenIntoLines) {
  const std::string html = drawing_of({{"shape", {70}}, {"differing", {{33, 1}}}, {"held", {{0, 0, 70}}}});
  EXPECT_THAT(html, HasSubstr("<rect x=9 y=9 width=9 height=9 class=differs/>"));
}

TEST(TensorDrawing, OneElementColoursItsBlock) {
  Json large{{"shape", {128, 192}}, {"differing", {{192 * 127 + 191, 1}}}, {"held", {{0, 0, 128 * 192}}}};
  large["not_shown"] = 7;
  const std::string html = drawing_of(large);
  EXPECT_THAT(html, HasSubstr("<rect x=855 y=567 width=9 height=9 class=differs/>"));
  EXPECT_THAT(html, HasSubstr("a cell stands for 2 x 2 elements"));
  EXPECT_THAT(html, HasSubstr("7 more that differ are not shown"));
}

TEST(TensorDrawing, WhatIsNoMapIsNotDrawn) {
  for (const char* text :
       {"[]", "null", R"({"shape": 3})", R"({"shape": [0], "differing": [], "held": []})",
        R"({"shape": [99999999], "differing": [], "held": []})",
        R"({"shape": [4096, 8192], "differing": [], "held": []})",
        R"({"shape": [2], "differing": [[1, 2]], "held": []})",
        R"({"shape": [2], "differing": [[-1, 1]], "held": []})",
        R"({"shape": [2], "differing": [[0]], "held": []})",
        R"({"shape": [2], "differing": [["0", 1]], "held": []})",
        R"({"shape": [2], "differing": [], "held": [[0, 2]]})", R"({"shape": [2], "differing": []})"}) {
    EXPECT_EQ(drawing_of(Json::parse(text)), "") << text;
  }
}

}  // namespace
}  // namespace fsdp_cts
