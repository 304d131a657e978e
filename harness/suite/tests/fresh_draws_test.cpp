#include "harness/suite/fresh_draws.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

namespace fsdp_cts {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(FreshDraws, WhoLoadsWhatWasMadeWithOtherDataIsLeftOut) {
  std::vector<Case> cases(6);
  const char* const written[6][2] = {{"a", ""},  {"b", "a"}, {"c", "b"},
                                     {"d", "a"}, {"e", "d"}, {"f", "not here"}};
  std::vector<Case*> all;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    cases[i].id = written[i][0];
    cases[i].continues = written[i][1];
    all.push_back(&cases[i]);
  }
  FreshDraws drawn{{{"a", 1}, {"b", 1}, {"c", 1}, {"d", 2}, {"e", 2}, {"f", 1}}, {}};
  leave_out_other_data(all, drawn);
  EXPECT_THAT(drawn.draws, ElementsAre(Pair("a", 1), Pair("b", 1), Pair("c", 1)));
  const std::string why = "it loads a checkpoint of other data";
  EXPECT_THAT(drawn.unfit, ElementsAre(Pair("d", why), Pair("e", why), Pair("f", why)));
}

TEST(FreshDraws, WhoContinuesOneWithoutFitDataIsLeftOut) {
  std::vector<Case> cases(2);
  cases[0].id = "a";
  cases[1].id = "b";
  cases[1].continues = "a";
  FreshDraws drawn{{{"b", 1}}, {{"a", "rounded"}}};
  leave_out_other_data({&cases[0], &cases[1]}, drawn);
  EXPECT_TRUE(drawn.draws.empty());
  EXPECT_EQ(drawn.unfit.size(), 2u);
}

// No data would help it, and each draw would cost two starts of the reference.
TEST(FreshDraws, WhatTheReferenceCannotActOutIsDrawnOnce) {
  const std::filesystem::path log = std::filesystem::path(::testing::TempDir()) / "fresh_draws_starts";
  std::filesystem::remove(log);
  Testee oracle;
  oracle.command = {"/bin/sh", "-c", "echo >> " + log.string() + "; exit 1"};
  oracle.oracle = true;
  Case a_case;
  a_case.id = "a";
  a_case.world = 2;
  a_case.switches = a_case.models = a_case.plans = Json::object();
  a_case.program = a_case.expect = Json::array();
  a_case.data = {{"seed", 1},
                 {"parameters", {{"formula", "ordinary"}, {"scale", "fan_in"}, {"norms", "constant"}}},
                 {"inputs", Json::object()}};
  const FreshDraws drawn = draw_fresh_data({&a_case}, 7, oracle, {});
  EXPECT_TRUE(drawn.draws.empty());
  EXPECT_THAT(drawn.unfit, ElementsAre(Pair("a", HasSubstr("ended with exit code 1"))));
  std::ifstream in(log);
  const auto starts = std::count(std::istreambuf_iterator<char>(in), {}, '\n');
  EXPECT_GE(starts, 1);
  EXPECT_LE(starts, 4);
  std::filesystem::remove(log);
}

}  // namespace
}  // namespace fsdp_cts
