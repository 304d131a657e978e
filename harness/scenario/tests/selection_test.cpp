#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/scenario/catalogue/coverage.hpp"
#include "harness/scenario/catalogue/explain.hpp"
#include "harness/scenario/catalogue/filter.hpp"
#include "harness/scenario/catalogue/listing.hpp"
#include "harness/scenario/catalogue/load.hpp"
#include "harness/scenario/glob.hpp"
#include "harness/scenario/read/mistakes.hpp"
#include "harness/scenario/tests/conformance_folder.hpp"

namespace fsdp_cts {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Case made(const std::string& scenario, const std::string& suffix, int world, Lane lane = Lane::tolerance) {
  Case a_case;
  a_case.scenario = scenario;
  a_case.method = scenario.substr(0, scenario.find('#'));
  a_case.id = scenario + "[" + suffix + "world=" + std::to_string(world) + "]";
  a_case.seed = scenario.substr(0, scenario.find('/'));
  a_case.world = world;
  a_case.lane = lane;
  a_case.seed_cases = scenario == a_case.method ? 1 : 0;
  return a_case;
}

std::vector<Case> some_cases() {
  std::vector<Case> cases = {made("F2MP/A/one", "x=1,", 2), made("F2MP/A/one", "x=1,", 4),
                             made("F2MP/A/one#exact", "x=1,", 2, Lane::exact), made("UOP/B/two", "", 2),
                             made("UOP/B/two_more", "", 2, Lane::exact)};
  cases[0].quick = true;
  cases[3].requires_ = {"gpu"};
  cases[4].skip_reason = "one reason";
  return cases;
}

std::vector<std::string> selected(const std::vector<std::string>& terms) {
  std::vector<std::string> ids;
  for (const Case& a_case : select_cases(some_cases(), terms).cases) ids.push_back(a_case.id);
  return ids;
}

TEST(Glob, StarsAndQuestionMarksOnly) {
  EXPECT_TRUE(matches_glob("a/b[c=1]", "a/b[c=1]"));
  EXPECT_TRUE(matches_glob("a/b[c=1]", "*[c=?]"));
  EXPECT_TRUE(matches_glob("aXbXc", "a*b*c"));
  EXPECT_TRUE(matches_glob("", "*"));
  EXPECT_FALSE(matches_glob("abc", "a*d"));
  EXPECT_FALSE(matches_glob("abc", "ab"));
  EXPECT_FALSE(matches_glob("ab", "ab?"));
  EXPECT_FALSE(matches_glob(std::string(5000, 'a'), std::string("a*a*a*a*a*a*a*a*a*b")));  // and soon
}

TEST(Filter, SameAttributeWidensDifferentOnesNarrow) {
  EXPECT_EQ(selected({}).size(), 5u);
  EXPECT_THAT(selected({"seed:UOP"}), ElementsAre("UOP/B/two[world=2]", "UOP/B/two_more[world=2]"));
  EXPECT_EQ(selected({"seed:UOP", "seed:F2MP"}).size(), 5u);
  EXPECT_THAT(selected({"seed:UOP", "seed:F2MP", "lane:exact"}),
              ElementsAre("F2MP/A/one#exact[x=1,world=2]", "UOP/B/two_more[world=2]"));
  EXPECT_THAT(selected({"world:4"}), ElementsAre("F2MP/A/one[x=1,world=4]"));
}

TEST(Filter, AScenarioIdSelectsAllItsCasesAndNoOthers) {
  EXPECT_THAT(selected({"F2MP/A/one"}), ElementsAre("F2MP/A/one[x=1,world=2]", "F2MP/A/one[x=1,world=4]"));
  EXPECT_THAT(selected({"UOP/B/two"}), ElementsAre("UOP/B/two[world=2]"));
  EXPECT_THAT(selected({"*x=1,world=4]"}), ElementsAre("F2MP/A/one[x=1,world=4]"));
}

TEST(Filter, Labels) {
  EXPECT_THAT(selected({"label:gpu"}), ElementsAre("UOP/B/two[world=2]"));
  EXPECT_EQ(selected({"label:cpu"}).size(), 4u);
  EXPECT_THAT(selected({"label:quick"}), ElementsAre("F2MP/A/one[x=1,world=2]"));
  EXPECT_THAT(selected({"label:skipped"}), ElementsAre("UOP/B/two_more[world=2]"));
}

TEST(Filter, MisspellingsAreErrorsOrReported) {
  for (const char* term : {"sead:UOP", "lane:exakt", "label:gpus", "world:two", "seed:"})
    EXPECT_THROW(Filter({term}), std::invalid_argument) << term;
  try {
    Filter({"sead:UOP"});
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean 'seed'?"));
  }
  EXPECT_THAT(select_cases(some_cases(), {"seed:UOP", "F2MP/A/oen"}).unmatched, ElementsAre("F2MP/A/oen"));
}

TEST(FewOfEachScenario, AreSpreadOverWhatThisMachineCanRun) {
  std::vector<Case> cases;
  for (int i = 0; i < 10; ++i) {
    Case& one = cases.emplace_back();
    one.scenario = i % 2 ? "odd" : "even";
    one.id = std::to_string(i);
    one.world = 2;
    if (i == 9) one.requires_ = {"gpu"};
  }
  const auto ids = [&](int count) {
    std::vector<std::string> kept;
    for (const Case& each : few_of_each_scenario(cases, count, Machine{})) kept.push_back(each.id);
    return kept;
  };
  EXPECT_THAT(ids(1), ElementsAre("4", "5"));  // the middle one of 0 2 4 6 8, and of 1 3 5 7
  EXPECT_THAT(ids(2), ElementsAre("2", "3", "4", "5"));
  EXPECT_THAT(ids(50), ElementsAre("0", "1", "2", "3", "4", "5", "6", "7", "8"));
}

TEST(FewOfEachScenario, ShowEveryValueOfAnAxisThatTakesTurns) {
  std::vector<Case> cases(64);
  for (int i = 0; i < 64; ++i) {
    cases[i].scenario = "one";
    cases[i].world = 2;
    cases[i].axes["stage"] = std::to_string(1 + i % 2);
    cases[i].axes["format"] = std::to_string(i / 2 % 4);
  }
  std::set<std::string> stages, formats;
  for (const Case& each : few_of_each_scenario(cases, 8, Machine{})) {
    stages.insert(each.axes.at("stage"));
    formats.insert(each.axes.at("format"));
  }
  EXPECT_EQ(stages.size(), 2u);
  EXPECT_EQ(formats.size(), 4u);
}

TEST(Filter, LoadingASelectionGivesTheSameCases) {
  const ConformanceFolder folder;
  folder.scenario(with_line(7, "worlds: [2, 4]"));
  const FilterResult few = load_selected_cases(folder.path(), {"world:4", "F2MP/Class/test_method"});
  const FilterResult all = select_cases(folder.load(), {"world:4"});
  ASSERT_EQ(few.cases.size(), 2u);
  for (std::size_t i = 0; i < few.cases.size(); ++i)
    EXPECT_EQ(case_message(few.cases[i]), case_message(all.cases[i]));
  EXPECT_THAT(load_selected_cases(folder.path(), {"nothing"}).unmatched, ElementsAre("nothing"));
}

TEST(Filters, RuleOutAScenarioOnlyByItsNameAndSeed) {
  const auto may = [](const char* term) { return Filter({term}).may_accept_some_of("F2MP/Class/test_one"); };
  for (const char* term : {"F2MP/*", "*one*", "F2MP/Class/test_one", "F2MP/Class/test_one[x=1,world=2]",
                           "F2MP/Class/test_one#twin*", "F2MP/Class/test_?ne", "F2MP/C*two*", "seed:F2*",
                           "world:7", "lane:exact", "label:gpu"})
    EXPECT_TRUE(may(term)) << term;
  for (const char* term : {"UOP/*", "F2MP/Other/*", "F2MP/Class/test_two", "seed:UOP", "seed:F1*"})
    EXPECT_FALSE(may(term)) << term;
}

TEST(Loading, DoesNotReadAFileThatCannotBeSelected) {
  const ConformanceFolder folder;
  folder.scenario(with_line(7, "worlds: [2, 4]"));
  folder.write("scenarios/broken.yaml", "id: UOP/Class/test_broken\nnonsense: [\n");
  EXPECT_EQ(load_selected_cases(folder.path(), {"F2MP/Class/test_method"}).unmatched.size(), 0u);
  EXPECT_THROW(load_selected_cases(folder.path(), {"UOP/*"}), ScenarioError);
  EXPECT_THROW(load_selected_cases(folder.path(), {"world:2"}), ScenarioError);
}

TEST(Loading, OfAFolderDoesNotReadAFileThatCannotBeSelectedEither) {
  const ConformanceFolder folder;
  folder.scenario(with_line(7, "worlds: [2, 4]"));
  folder.write("scenarios/broken.yaml", "id: UOP/Class/test_broken\nnonsense: [\n");
  const auto selected = [&](const char* term) {
    return load_selected_scenario_files(folder.path() / "scenarios", folder.path(), {term});
  };
  EXPECT_EQ(selected("F2MP/*").cases.size(), 4u);
  EXPECT_THROW(selected("UOP/*"), ScenarioError);
}

TEST(Loading, ReadsAFileAgainThatHasChanged) {
  const ConformanceFolder folder;
  folder.scenario(with_line(7, "worlds: [2, 4]"));
  const std::size_t before = folder.load().size();
  folder.scenario(with_line(7, "worlds: [2]"));
  EXPECT_EQ(folder.load().size() * 2, before);
  EXPECT_EQ(folder.load().size() * 2, before);
}

TEST(Listing, SaysWhatCannotRunAndWhy) {
  const Json rows = listing_json(list_cases(some_cases(), Machine{}));
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(
      rows[0],
      Json::parse(
          R"({"id":"F2MP/A/one[x=1,world=2]","scenario":"F2MP/A/one","seed":"F2MP","world":2,"lane":"tolerance","requires":[],
                                     "runnable":true,"reason":"","seed_cases":1,"cpu_form":"","continues":"","clauses":[]})"));
  EXPECT_EQ(rows[3]["runnable"], false);
  EXPECT_EQ(rows[3]["reason"], "needs 2 GPUs, one per rank; this machine has 0");
  EXPECT_EQ(rows[4]["reason"], "upstream returns early: one reason");
  EXPECT_EQ(
      list_cases(some_cases(), Machine{.gpus = 1})[3].reason,
      "needs 2 GPUs, one per rank; this machine has 1 (with --device cuda --backend shm ranks share one)");
  EXPECT_EQ(list_cases(some_cases(), Machine{.gpus = 2})[3].runnable, true);
}

TEST(Listing, WhatIsCudasAloneDoesNotRunOnOtherAccelerators) {
  auto cases = some_cases();
  cases[3].requires_ = {"gpu", "cuda"};
  EXPECT_EQ(list_cases(cases, Machine{.gpus = 2})[3].reason,
            "is about kernels or messages that are CUDA's alone");
  EXPECT_EQ(list_cases(cases, Machine{.gpus = 2, .cuda = true})[3].runnable, true);
  cases[3].requires_ = {"gpu", "sim"};
  EXPECT_EQ(list_cases(cases, Machine{.gpus = 2})[3].reason,
            "is about virtual time, which only --device sim has");
  EXPECT_EQ(list_cases(cases, Machine{.gpus = 2, .simulated = true})[3].runnable, true);
}

const std::vector<SeedMethod> two_methods = {{"F2MP/A/one", "F2MP", 1, 2, 0}, {"UOP/B/two", "UOP", 1, 1, 0}};

TEST(Coverage, CountsACombinationOnceHoweverManyWorlds) {
  std::vector<Case> cases = some_cases();
  cases.pop_back();
  const Coverage coverage = measure_coverage(cases, two_methods, {}, Machine{});
  EXPECT_EQ(coverage.expected, 3);
  EXPECT_EQ(coverage.present, 2);
  EXPECT_EQ(coverage.runnable, 1);
  EXPECT_EQ(coverage.cpu_forms, 0);
  EXPECT_EQ(coverage.missing, 1);
  EXPECT_EQ(coverage.methods[0].present, 1);
  EXPECT_EQ(coverage.methods[0].additions, 1);
  EXPECT_THAT(coverage.faults, IsEmpty());
  EXPECT_FALSE(coverage.complete());
  EXPECT_EQ(coverage_json(coverage)["seeds"][1],
            Json::parse(R"({"seed":"UOP","methods":1,"expected":1,"present":1,"runnable":0,"missing":0})"));
  cases.push_back(made("F2MP/A/one", "x=2,", 2));
  cases.back().cpu_form = "nothing is moved";
  const Coverage full = measure_coverage(cases, two_methods, {}, Machine{});
  EXPECT_TRUE(full.complete());
  EXPECT_EQ(full.cpu_forms, 1);
}

TEST(Coverage, SurplusStrangersAndUnmarkedEarlyReturnsAreFaults) {
  std::vector<Case> cases = {made("F2MP/A/one", "x=1,", 2), made("F2MP/A/one", "x=2,", 2),
                             made("F2MP/A/one", "x=3,", 2), made("UOP/B/three", "", 2)};
  EXPECT_THAT(measure_coverage(cases, two_methods, {}, Machine{}).faults,
              ElementsAre(HasSubstr("3 combinations present, upstream has 2"),
                          HasSubstr("UOP/B/three: a scenario of this method exists")));
  cases = {made("UOP/B/three", "", 2)};
  cases[0].seed_cases = 0;  // of_seed: "false"
  EXPECT_THAT(measure_coverage(cases, two_methods, {}, Machine{}).faults, IsEmpty());
  const std::vector<SeedMethod> early = {{"UOP/B/two", "UOP", 1, 1, 1}};
  EXPECT_THAT(measure_coverage({made("UOP/B/two", "", 2)}, early, {}, Machine{}).faults,
              ElementsAre(HasSubstr("0 early returns marked by skip, upstream has 1")));
  cases = {made("UOP/B/two", "", 2)};
  cases[0].skip_reason = "x";
  EXPECT_THAT(measure_coverage(cases, two_methods, {}, Machine{}).faults,
              ElementsAre(HasSubstr("1 early return marked by skip, upstream has 0")));
}

TEST(Coverage, CountsMethodsBeyondTheSeedsByArea) {
  std::vector<Case> cases = {made("F2SD/A/one", "x=1,", 2), made("F2SD/A/one", "x=2,", 2),
                             made("F2SD/A/one#exact", "x=1,", 2), made("OWN/A/three", "", 2)};
  cases.back().seed_cases = 0;
  const std::vector<UpstreamArea> upstream = {{"F2SD", 2, 1}, {"F1SD", 5, 0}};
  const Coverage coverage = measure_coverage(cases, two_methods, upstream, Machine{});
  EXPECT_THAT(coverage.faults, IsEmpty());
  EXPECT_EQ(coverage.own, 1);
  EXPECT_EQ(coverage_json(coverage)["upstream"], Json::parse(R"({"methods":9,"present":1,"areas":[
                {"area":"F2SD","methods":2,"out":1,"present":1,"combinations":2,"runnable":2},
                {"area":"F1SD","methods":5,"out":0,"present":0,"combinations":0,"runnable":0}]})"));
  cases.push_back(made("F2SD/A/two", "", 2));
  EXPECT_THAT(measure_coverage(cases, two_methods, upstream, Machine{}).faults,
              ElementsAre(HasSubstr("F2SD: 2 methods present, upstream has 1 of this subject")));
}

TEST(Seeds, MistakesHaveLines) {
  const ConformanceFolder folder;
  folder.write("seeds.yaml", "methods:\n  F2MP/A/one: {items: 1, case: 2}\n");
  try {
    load_seeds(folder.path());
    FAIL();
  } catch (const ScenarioError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("seeds.yaml:2: unknown key in F2MP/A/one 'case', did you mean 'cases'?"));
  }
}

TEST(Explain, TellsWhyWhatAndHow) {
  const Case a_case = first_case(with_line(30,
                                           "  - repeat: 3\n    do:\n      - {forward: {input: x, grad: "
                                           "\"${iteration == 1}\"}, ranks: [0]}\n  - forward: x"));
  const std::string text = explain_case(a_case);
  for (const char* part :
       {"F2MP/Class/test_method[flag=true,world=2]\n", "Why         A reason.",
        "seed 000, lines 1-2 (upstream.py)", "'model': Sequential with 2 parameters of 20 elements",
        "all values: seed ", "'x': shape ", "'model' by fully_shard", "modules 0: reshard_after_forward true",
        "  - make 'model' with its initial values\n", "  3 times:\n",
        "    - run 'model' on x, giving 'output': grad false, then true, then false; on ranks 0 only\n",
        "loss equal to the reference, golden, tolerance upstream",
        "fsdp-cts run 'F2MP/Class/test_method[flag=true,world=2]'\n", "fsdp-cts replay '"})
    EXPECT_THAT(text, HasSubstr(part));
  std::size_t longest = 0;
  for (std::size_t at = 0, end; at < text.size(); at = end + 1)
    longest = std::max(longest, (end = text.find('\n', at)) - at);
  EXPECT_LE(longest, 110u);
}

}  // namespace
}  // namespace fsdp_cts
