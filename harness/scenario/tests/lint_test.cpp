// What the whole suite must hold to, beside each scenario's own form: claims fit lines, and what is observed
// is looked at.
#include "harness/scenario/catalogue/lint.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/scenario/read/mistakes.hpp"
#include "harness/scenario/tests/conformance_folder.hpp"

namespace fsdp_cts {
namespace {

using ::testing::HasSubstr;

const char* const clauses =
    "| id | | rule | source |\n|---|---|---|---|\n| FS-MP-1 | MUST | One. | own |\n| FS-RED-2 | MUST | Two. "
    "| own, law |\n";

// `sound_scenario` with its only expectation replaced, in a folder with two clauses.
class Lint : public testing::Test {
 protected:
  Lint() { folder_.write("clauses.md", clauses); }

  std::string mistakes(const std::string& expect) {
    folder_.scenario(with_line(34, expect));
    return mistakes();
  }
  std::string mistakes() const {
    try {
      check_suite(folder_.path(), folder_.load());
      return "";
    } catch (const ScenarioError& error) {
      return error.what();
    }
  }

  ConformanceFolder folder_;
};

TEST_F(Lint, HasNothingAgainstClaimsThatAreCarried) {
  EXPECT_EQ(mistakes("  - {equal: {what: [loss]}, clause: FS-MP-1}"), "");
  EXPECT_EQ(mistakes("  - {equal: {what: [loss]}, clause: FS-MP-1, when: flag}"), "");
}

TEST_F(Lint, AClauseThatNoLineCarries) {
  EXPECT_THAT(mistakes("  - {finite: loss}"),
              HasSubstr("one.yaml:3: clause FS-MP-1 is listed, but no expectation"));
  EXPECT_THAT(mistakes("  - {equal: {what: [loss]}, clause: FS-MP-1, when: false}\n  - {finite: loss}"),
              HasSubstr("clause FS-MP-1 is listed, but no expectation"));
}

TEST_F(Lint, ALineOfATwinCarriesItToo) {
  EXPECT_EQ(
      mistakes(
          "  - {finite: loss}\ntwins:\n  other:\n    why: x\n    expect:\n      - {finite: loss, clause: "
          "FS-MP-1}"),
      "");
}

TEST_F(Lint, AClauseThatNobodyCarriesAnywhere) {
  folder_.write("clauses.md", std::string(clauses) + "| FS-MP-2 | MUST | Three. | own |\n");
  EXPECT_THAT(mistakes("  - {equal: {what: [loss]}, clause: FS-MP-1}"),
              HasSubstr("clauses.md:5: clause FS-MP-2 is carried by no expectation of any scenario"));
}

TEST_F(Lint, AClauseThatTheHeaderLacks) {
  EXPECT_THAT(mistakes("  - {equal: {what: [loss]}, clause: [FS-MP-1, FS-RED-2]}"),
              HasSubstr("one.yaml:34: clause FS-RED-2 is missing in the scenario's `clauses`"));
}

TEST_F(Lint, AnUnknownClause) {
  const std::string text = mistakes("  - {equal: {what: [loss]}, clause: [FS-MP-1, FS-MP-9]}");
  EXPECT_THAT(text, HasSubstr("one.yaml:34: clause FS-MP-9 is not in clauses.md"));
}

TEST_F(Lint, AClauseThatStandsTwice) {
  folder_.write("clauses.md", std::string(clauses) + "| FS-MP-1 | MUST | Another rule. | own |\n");
  EXPECT_THAT(mistakes("  - {equal: {what: [loss]}, clause: FS-MP-1}"),
              HasSubstr("clauses.md:5: clause FS-MP-1 stands in line 3 already"));
}

TEST_F(Lint, NoClausesAtAll) {
  folder_.write("clauses.md", "nothing\n");
  EXPECT_THAT(mistakes("  - {equal: {what: [loss]}, clause: FS-MP-1}"),
              HasSubstr("no clause was found here"));
}

TEST_F(Lint, AnObservationThatNobodyLooksAt) {
  const std::string observed = with_line(32, "  - observe: [loss, trace, parameters]");
  const std::string with_clause = observed.substr(0, observed.rfind("  - equal"));
  folder_.scenario(with_clause + "  - {equal: {what: [loss]}, clause: FS-MP-1}\n");
  EXPECT_THAT(mistakes(), HasSubstr("one.yaml:32: 'trace' is observed here and no expectation looks at it"));
  EXPECT_THAT(mistakes(), HasSubstr("'parameters' is observed here"));
  folder_.scenario(
      with_clause +
      "  - {equal: {what: [loss]}, clause: FS-MP-1}\n  - collectives: {count: 1}\n  - layout: {kind: "
      "chunk_dim0, sharded: true}\n");
  EXPECT_EQ(mistakes(), "");
}

TEST_F(Lint, WhatComesAfterAnErrorNeedsNoLine) {
  std::string text = with_line(32, "  - {attempt: bad, do: [{observe: [loss]}]}");
  text = text.substr(0, text.rfind("  - equal"));
  folder_.scenario(text + "  - {error: {attempt: bad, type: ValueError}, clause: FS-MP-1}\n");
  EXPECT_EQ(mistakes(), "");
  folder_.scenario(text + "  - {no_error: {attempt: bad}, clause: FS-MP-1}\n");
  EXPECT_THAT(mistakes(), HasSubstr("'loss' is observed here"));
}

TEST_F(Lint, LabelsDecideWhoLooksAtWhat) {
  folder_.scenario(
      with_line(32, "  - {observe: [loss], label: first}\n  - {observe: [loss], label: second}"));
  std::string text =
      with_line(32, "  - {observe: [loss], label: first}\n  - {observe: [loss], label: second}");
  text = text.substr(0, text.rfind("  - equal"));
  folder_.scenario(text + "  - {equal: {what: [loss]}, clause: FS-MP-1, label: first}\n");
  EXPECT_THAT(mistakes(), HasSubstr("one.yaml:33: 'loss' is observed here"));
  folder_.scenario(text + "  - {match: {what: [loss], labels: [first, second]}, clause: FS-MP-1}\n");
  EXPECT_EQ(mistakes(), "");
}

TEST_F(Lint, DifferOfNothing) {
  std::string text =
      with_line(32, "  - {observe: [parameters], label: first}\n  - {observe: [parameters], label: second}");
  text = text.substr(0, text.rfind("  - equal"));
  const std::string line = "  - {differ: {what: [parameters], labels: [first, second], only: ";
  folder_.scenario(text + line + "\"^0.weight$\"}, clause: FS-MP-1}\n");
  EXPECT_EQ(mistakes(), "");
  folder_.scenario(text + line + "\"^0.wieght$\"}, clause: FS-MP-1}\n");
  EXPECT_THAT(mistakes(), HasSubstr("one.yaml:35: differ.only '^0.wieght$' matches no parameter"));
}

}  // namespace
}  // namespace fsdp_cts
