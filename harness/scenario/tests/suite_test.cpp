// The suite as it is committed: it loads, it covers the seeds, and what is published beside it (schemas,
// levels) says what the loader says. After a change the test writes the new file and names the command that
// publishes it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <set>

#include "harness/protocol/schema.hpp"
#include "harness/scenario/catalogue/coverage.hpp"
#include "harness/scenario/catalogue/explain.hpp"
#include "harness/scenario/catalogue/lint.hpp"
#include "harness/scenario/catalogue/load.hpp"
#include "harness/scenario/catalogue/machine.hpp"
#include "harness/scenario/data/make_data.hpp"
#include "harness/scenario/read/schema.hpp"
#include "harness/scenario/read/yaml_file.hpp"

namespace fsdp_cts {
namespace {

const std::filesystem::path conformance = FSDP_CTS_CONFORMANCE;

void expect_published(const std::string& file, const std::string& wanted) {
  const std::filesystem::path published = conformance / file;
  std::ifstream stream(published);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (text == wanted) return;
  const std::string fresh = testing::TempDir() + published.filename().string();
  std::ofstream(fresh) << wanted;
  ADD_FAILURE() << published.string() << " is not what the loader says.\nPublish the new one:  cp " << fresh
                << " " << published.string();
}

TEST(Schema, OfScenariosIsPublished) {
  expect_published("schema/scenario.schema.json", schema_text(scenario_schema()));
}
TEST(Schema, OfModelsIsPublished) {
  expect_published("schema/model.schema.json", schema_text(model_schema()));
}

// What the published schema says of a file: "fits", or where it does not.
std::string judged(const Schema& schema, const DataTree& file) {
  const auto violation = schema.check(file.json());
  return violation ? violation->sentence() : "fits";
}

Schema published_schema(const std::string& file) {
  std::ifstream stream(conformance / "schema" / file);
  return Schema(Json::parse(stream));
}

DataTree read_file(const std::filesystem::path& file) {
  Mistakes mistakes;
  DataTree tree = read_yaml(file, file.string(), mistakes);
  mistakes.throw_if_any();
  return tree;
}

TEST(Schema, EveryFileOfTheSuiteFits) {
  for (const auto& [folder, schema_file] :
       {std::pair("scenarios", "scenario.schema.json"), std::pair("models", "model.schema.json")}) {
    const Schema schema = published_schema(schema_file);
    int files = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(conformance / folder)) {
      if (entry.path().extension() != ".yaml") continue;
      ++files;
      EXPECT_EQ(judged(schema, read_file(entry.path())), "fits") << entry.path();
    }
    EXPECT_GT(files, 20) << folder;
  }
}

TEST(Schema, ASpoiledFileDoesNotFit) {
  const Schema schema = published_schema("scenario.schema.json");
  const DataTree sound = read_file(conformance / "scenarios/f2mp/test_compute_dtype.yaml");
  ASSERT_EQ(judged(schema, sound), "fits");
  const auto spoiled = [&](const std::function<void(DataTree&)>& spoil) {
    DataTree file = sound;
    spoil(file);
    return judged(schema, file);
  };
  const auto step = [](DataTree& file) -> DataTree& { return file.find("program")->items.front(); };
  EXPECT_THAT(spoiled([](DataTree& file) { file.erase("why"); }), testing::HasSubstr("no key \"why\""));
  EXPECT_THAT(spoiled([](DataTree& file) { file.set("lanes", tree_of("exact", {})); }),
              testing::HasSubstr("found the key \"lanes\""));
  EXPECT_THAT(spoiled([](DataTree& file) { file.set("lane", tree_of("exakt", {})); }),
              testing::HasSubstr("at /lane: found \"exakt\""));
  EXPECT_THAT(spoiled([&](DataTree& file) { step(file).entries.front().key = "biuld"; }),
              testing::HasSubstr("at /program/0"));
  EXPECT_THAT(spoiled([&](DataTree& file) { step(file).set("backward", tree_of(nullptr, {})); }),
              testing::HasSubstr("at /program/0"));
}

// The suite itself, as it is committed.
class Suite : public testing::Test {
 protected:
  static const std::vector<Case>& cases() {
    static const std::vector<Case> loaded = load_cases(conformance);
    return loaded;
  }
};

TEST_F(Suite, EveryCaseLoadsHasDataAndCanBeExplained) {
  ASSERT_FALSE(cases().empty());
  for (const Case& a_case : cases()) {
    EXPECT_FALSE(explain_case(a_case).empty()) << a_case.id;
    if (a_case.skip_reason) continue;
    EXPECT_FALSE(make_data(a_case).empty()) << a_case.id;
    EXPECT_FALSE(a_case.program.empty()) << a_case.id;
    EXPECT_FALSE(a_case.expect.empty()) << a_case.id << " expects nothing";
  }
}

TEST_F(Suite, IdsAreUnique) {
  std::map<std::string, int> count;
  for (const Case& a_case : cases()) EXPECT_EQ(++count[a_case.id], 1) << a_case.id;
}

TEST_F(Suite, EveryScenarioHasAQuickCase) {
  std::map<std::string, bool> quick;
  // What needs a GPU in every case is quick for nobody who has none.
  for (const Case& a_case : cases()) {
    if (a_case.requires_.empty()) quick[a_case.scenario] |= a_case.quick;
  }
  for (const auto& [scenario, has_one] : quick) EXPECT_TRUE(has_one) << scenario;
}

// The API that all plans of a case ask for; "" where they differ or there is none.
std::string api_of(const Case& a_case) {
  std::set<std::string> apis;
  for (const auto& [instance, plan] : a_case.plans.items()) apis.insert(plan.at("api").get<std::string>());
  return apis.size() == 1 ? *apis.begin() : "";
}

// What must have been judged on a CPU: one file per seed, per seed and world, per API, for the quick subset
// and for everything, so that a case that vanishes is missed. What needs a GPU is selected as well and demanded of
// nobody.
TEST_F(Suite, LevelsArePublished) {
  const Machine without_gpu{};
  struct Level {
    std::string of;
    std::map<std::string, int> patterns;
    void add(const std::string& pattern, bool demanded) { patterns[pattern] += demanded; }
  };
  std::map<std::string, Level> levels;  // by file name
  const std::vector<SeedMethod> seeds = load_seeds(conformance);
  levels["full.txt"].of = "all of the suite";
  levels["quick.txt"].of = "the quick subset";
  levels["fully_shard.txt"].of = "what concerns FSDP2 (fully_shard) alone";
  levels["fsdp.txt"].of = "what concerns the FSDP1 wrapper alone";
  levels["composable.txt"].of = "what concerns the composable form of FSDP1 alone";
  for (const Case& a_case : cases()) {
    const bool runnable = !why_not_runnable(a_case, without_gpu);
    const bool of_seed = std::any_of(seeds.begin(), seeds.end(),
                                     [&](const SeedMethod& one) { return one.seed == a_case.seed; });
    const std::string all_of_it = a_case.scenario + "[*";
    if (of_seed) {  // the others' areas are many and small
      std::string seed = a_case.seed;
      std::transform(seed.begin(), seed.end(), seed.begin(), [](unsigned char c) { return std::tolower(c); });
      const std::string world = std::to_string(a_case.world);
      Level &whole = levels[seed + ".txt"], &of_world = levels[seed + ".w" + world + ".txt"];
      whole.of = "seed:" + a_case.seed;
      whole.add(all_of_it, runnable);
      of_world.of = whole.of + " at world " + world;
      of_world.add(a_case.scenario + "[*world=" + world + "]", runnable);
    }
    levels["full.txt"].add(all_of_it, runnable);
    if (!api_of(a_case).empty()) levels[api_of(a_case) + ".txt"].add(all_of_it, runnable);
    if (a_case.quick) levels["quick.txt"].add(a_case.id, runnable);
  }
  for (const auto& [name, level] : levels) {
    std::string text = "# " + level.of +
                       ": the cases, and how many of them must have been judged on a CPU. For `fsdp-cts run "
                       "--level " +
                       name.substr(0, name.rfind('.')) + "`.\n";
    for (const auto& [pattern, count] : level.patterns)
      text += pattern + " >= " + std::to_string(count) + "\n";
    expect_published("levels/" + name, text);
  }
  for (const auto& file : std::filesystem::directory_iterator(conformance / "levels"))
    EXPECT_TRUE(levels.count(file.path().filename().string())) << file.path() << " is no level; remove it";
}

TEST_F(Suite, ClaimsFitItsLines) {
  EXPECT_NO_THROW(check_suite(conformance, cases()));
}

TEST(Seeds, HaveTheTotalsOfTheUpstreamFiles) {
  int items = 0, cases = 0, early_returns = 0;
  std::map<std::string, int> cases_of;
  const std::vector<SeedMethod> seeds = load_seeds(conformance);
  for (const SeedMethod& method : seeds) {
    items += method.items;
    cases += method.cases;
    early_returns += method.early_returns;
    cases_of[method.seed] += method.cases;
  }
  EXPECT_EQ(seeds.size(), 63u);
  EXPECT_EQ(items, 144);
  EXPECT_EQ(cases, 1916);
  EXPECT_EQ(early_returns, 8);
  EXPECT_EQ(cases_of, (std::map<std::string, int>{
                          {"F2MP", 26}, {"C1MP", 8}, {"UOP", 349}, {"CORE", 1475}, {"WRAP", 58}}));
}

TEST(Upstream, HasTheTotalsOfTheWholeTree) {
  int methods = 0;
  for (const UpstreamArea& area : load_upstream(conformance)) methods += area.methods;
  EXPECT_EQ(methods, 432);
}

TEST_F(Suite, CoversEverySeed) {
  const Coverage coverage =
      measure_coverage(cases(), load_seeds(conformance), load_upstream(conformance), this_machine());
  for (const std::string& fault : coverage.faults) ADD_FAILURE() << fault;
  for (const MethodCoverage& method : coverage.methods) EXPECT_EQ(method.missing(), 0) << method.seed.method;
}

TEST_F(Suite, ProgramsAreCountedBesideCases) {
  const Coverage coverage =
      measure_coverage(cases(), load_seeds(conformance), load_upstream(conformance), Machine{});
  EXPECT_GT(coverage.programs, 0);
  EXPECT_LT(coverage.programs, coverage.runnable);
  EXPECT_LT(coverage.distinct.all, coverage.cases.all);
  EXPECT_LE(coverage.distinct.exact, coverage.distinct.numeric);
  EXPECT_LT(coverage.distinct.numeric, coverage.distinct.all);
  int sentences = 0;
  for (const auto& [sentence, count] : coverage.dropped) sentences += count;
  EXPECT_GE(sentences, coverage.cpu_forms);
}

TEST_F(Suite, NoScenarioRestsOnWhatTesteesSayAlone) {
  EXPECT_THAT(
      measure_coverage(cases(), load_seeds(conformance), load_upstream(conformance), Machine{}).self_reported,
      testing::IsEmpty());
  std::vector<Case> shorn = cases();
  for (Case& each : shorn) {
    if (each.scenario != "WRAP/TestAutoWrap/test_module_wrap_policy") continue;
    each.expect.erase(std::remove_if(each.expect.begin(), each.expect.end(),
                                     [](const Json& line) { return line.contains("registered_parameters"); }),
                      each.expect.end());
  }
  EXPECT_THAT(
      measure_coverage(shorn, load_seeds(conformance), load_upstream(conformance), Machine{}).self_reported,
      testing::ElementsAre("WRAP/TestAutoWrap/test_module_wrap_policy"));
}

}  // namespace
}  // namespace fsdp_cts
