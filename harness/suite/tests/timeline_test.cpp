// Traces of ranks as a report holds them.
#include "harness/suite/timeline.hpp"

#include <gtest/gtest.h>

#include <fstream>

namespace fsdp_cts {
namespace {

class Timeline : public ::testing::Test {
 protected:
  Timeline() { std::filesystem::create_directories(folder_); }
  ~Timeline() override { std::filesystem::remove_all(folder_); }

  void write(int rank, const std::string& text) {
    std::ofstream(folder_ / ("rank" + std::to_string(rank) + ".json")) << text;
  }
  // `count` operators of 1 us, one behind the other, on lane 3; a finding at `found`.
  static Json trace(int count, double found) {
    Json events = Json::array();
    events.push_back({{"ph", "M"}, {"tid", 3}, {"name", "thread_name"}, {"args", {{"name", "the stream"}}}});
    for (int i = 0; i < count; ++i)
      events.push_back({{"ph", "X"}, {"tid", 3}, {"name", "op"}, {"cat", "compute"}, {"ts", i}, {"dur", 1}});
    if (found >= 0)
      events.push_back(
          {{"ph", "i"}, {"tid", 3}, {"name", "stream_race"}, {"ts", found}, {"args", {{"text", "why"}}}});
    return {{"otherData", {{"machine", "slow"}}}, {"traceEvents", events}};
  }

  std::filesystem::path folder_ = std::filesystem::path(::testing::TempDir()) / "fsdp_cts_timeline_test";
};

TEST_F(Timeline, OfEachRankThatHasATrace) {
  write(0, trace(2, 1).dump());
  write(1, "no trace");
  write(2, trace(1, -1).dump());
  const Json expected = Json::parse(R"({"machine": "slow", "ranks": [
    {"rank": 0, "lanes": [{"name": "the stream", "spans": [[0.0, 1.0, "compute", "op"], [1.0, 1.0, "compute", "op"]]}],
     "marks": [[0, 1.0, "stream_race", "why"]], "not_shown": 0},
    {"rank": 2, "lanes": [{"name": "the stream", "spans": [[0.0, 1.0, "compute", "op"]]}], "marks": [], "not_shown": 0}]})");
  EXPECT_EQ(read_timeline(folder_, 4), expected);
}

TEST_F(Timeline, AHundredOperatorsAroundTheFirstFinding) {
  write(0, trace(1000, 400).dump());
  const Json rank = read_timeline(folder_, 1)["ranks"][0];
  EXPECT_EQ(rank["not_shown"], 880);
  EXPECT_EQ(rank["lanes"][0]["spans"].front()[0], 340);
  EXPECT_EQ(rank["lanes"][0]["spans"].back()[0], 459);
}

TEST_F(Timeline, WithoutFindingsTheLastOnes) {
  write(0, trace(1000, -1).dump());
  EXPECT_EQ(read_timeline(folder_, 1)["ranks"][0]["lanes"][0]["spans"].front()[0], 880);
}

TEST_F(Timeline, NoneWhereNoRankHasOne) {
  EXPECT_TRUE(read_timeline(folder_, 2).is_null());
  write(0, R"({"traceEvents": [{"ph": "X"}]})");
  EXPECT_TRUE(read_timeline(folder_, 1).is_null());
}

}  // namespace
}  // namespace fsdp_cts
