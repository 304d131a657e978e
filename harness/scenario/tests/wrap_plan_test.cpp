// What a plan says about wrapping: policies, and units made by `wrap()`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/scenario/tests/conformance_folder.hpp"

namespace fsdp_cts {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// The sound scenario with an `fsdp` plan of these units in place of its own.
std::string with_units(const std::string& api, const std::string& units) {
  std::string text = sound_scenario;
  const std::string from = "    api: fully_shard\n", to = "program:\n";
  const std::size_t begin = text.find(from);
  return text.replace(begin, text.find(to) - begin, "    api: " + api + "\n    units:\n" + units);
}

std::string mistakes_of(const std::string& units, const std::string& api = "fsdp") {
  const ConformanceFolder folder;
  folder.scenario(with_units(api, units));
  return folder.mistakes();
}

TEST(WrapPlan, AContextHoldsDefaultsOfAUnit) {
  const Case a_case =
      first_case(with_units("fsdp",
                            "      - {modules: [\"0\"], enable_wrap: outside}\n"
                            "      - {modules: [\"\"], process_group: {dummy: 2}, enable_wrap: "
                            "{process_group: {dummy: 1}, auto_wrap: "
                            "{policy: size_based, force_leaf: [Linear], exclude_wrap: []}}}\n"));
  const Json& units = a_case.plans["model"]["units"];
  EXPECT_EQ(units[0]["enable_wrap"], "outside");
  EXPECT_EQ(units[1]["enable_wrap"]["process_group"]["dummy"], 1);
  EXPECT_EQ(units[1]["enable_wrap"]["auto_wrap"]["force_leaf"], Json::array({"Linear"}));
  EXPECT_EQ(units[1]["process_group"]["dummy"], 2);
}

TEST(WrapPlan, MistakesInsideAContextAreFound) {
  EXPECT_THAT(mistakes_of("      - {modules: [\"\"], enable_wrap: inside}\n"),
              HasSubstr("'inside', did you mean 'outside'?"));
  EXPECT_THAT(mistakes_of("      - {modules: [\"\"], enable_wrap: {modules: [\"0\"]}}\n"),
              HasSubstr("unknown key"));
  EXPECT_THAT(mistakes_of("      - {modules: [\"\"], enable_wrap: {ignored_modules: [\"7\"]}}\n"),
              HasSubstr("unknown module in the plan of 'model' '7'"));
  EXPECT_THAT(mistakes_of("      - {modules: [\"\"], enable_wrap: {auto_wrap: {policy: or, policies: "
                          "[{policy: nevver}]}}}\n"),
              HasSubstr("'nevver', did you mean 'never'?"));
  EXPECT_THAT(mistakes_of("      - {modules: [\"\"], enable_wrap: outside}\n", "composable"),
              HasSubstr("unknown key in unit 'enable_wrap'"));
}

TEST(WrapPlan, UnitTreesAloneAskForNoTensors) {
  const auto minimum = [](const std::string& what) {
    std::string text = with_units("fsdp", "      - {modules: [\"\"]}\n");
    text.replace(text.find("observe: [loss]"), 15, "observe: [loss, units]");
    text.replace(text.find("what: [loss]"), 12, "what: [" + what + "]");
    return first_case(text).minimum;
  };
  EXPECT_THAT(minimum("units"), IsEmpty());
  EXPECT_EQ(minimum("units, loss")["elements"], 1);
}

}  // namespace
}  // namespace fsdp_cts
