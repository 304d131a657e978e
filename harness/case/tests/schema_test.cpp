// The published schemas say what the loader checks. After a change of the tables the test writes the new
// files and names the command that publishes them.
#include "harness/case/schema.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "harness/case/coverage.hpp"
#include "harness/case/explain.hpp"

namespace fsdp_cts {
namespace {

const std::filesystem::path conformance = FSDP_CTS_CONFORMANCE;

void expect_published(const std::string& name, const Json& schema) {
  const std::filesystem::path published = conformance / "schema" / name;
  std::ifstream stream(published);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const std::string wanted = schema.dump(1) + "\n";
  if (text == wanted) return;
  const std::string fresh = testing::TempDir() + name;
  std::ofstream(fresh) << wanted;
  FAIL() << published.string() << " is not what the loader checks.\nPublish the new one:  cp " << fresh << " "
         << published.string();
}

TEST(Schema, OfScenariosIsPublished) {
  expect_published("scenario.schema.json", scenario_schema());
}
TEST(Schema, OfModelsIsPublished) {
  expect_published("model.schema.json", model_schema());
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
  for (const Case& a_case : cases()) quick[a_case.scenario] |= a_case.quick;
  for (const auto& [scenario, has_one] : quick) EXPECT_TRUE(has_one) << scenario;
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

TEST_F(Suite, CoversSeed000AndHasNoFaults) {
  const Coverage coverage = measure_coverage(cases(), load_seeds(conformance), this_machine());
  for (const std::string& fault : coverage.faults) ADD_FAILURE() << fault;
  for (const MethodCoverage& method : coverage.methods) {
    if (method.seed.seed == "F2MP") {
      EXPECT_EQ(method.missing(), 0) << method.seed.method;
    }
  }
}

}  // namespace
}  // namespace fsdp_cts
