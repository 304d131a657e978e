// A vendor's list of known deviations excuses what it announces and nothing else.
#include "harness/judge/known_deviations.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace fsdp_cts {
namespace {

namespace fs = std::filesystem;

Case named(const std::string& id) {
  Case result;
  result.id = id;
  result.world = 2;
  return result;
}

Verdict failed(const std::string& code) {
  Verdict verdict;
  verdict.kind = VerdictKind::fail;
  verdict.code = code;
  verdict.divergence = {{"parameter", "0.weight"}};
  return verdict;
}

Verdict passed() {
  Verdict verdict;
  verdict.kind = VerdictKind::pass;
  verdict.code = "pass";
  return verdict;
}

class KnownDeviationsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    file_ = fs::path(::testing::TempDir()) /
            ("deviations-" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) +
             ".yaml");
  }
  void TearDown() override { fs::remove(file_); }

  KnownDeviations list(const std::string& yaml) {
    std::ofstream(file_) << yaml;
    return KnownDeviations(file_, {{"testee", "mine"}, {"backend", "gloo"}}, "2026-06-01");
  }
  std::string fault_of(const std::string& yaml) {
    try {
      list(yaml);
    } catch (const DeviationFileError& error) {
      return error.what();
    }
    return "";
  }
  std::string content() const {
    std::ostringstream all;
    all << std::ifstream(file_).rdbuf();
    return all.str();
  }

  fs::path file_;
  std::string note_;
  std::vector<Case> suite_ = {named("T/C/a[world=2]"), named("T/C/b[world=2]")};
};

const char* one =
    "- {id: 'T/C/a*', verdict: fail, locus: {code: value}, reason: rounds twice, expires: 2026-12-31}\n";

TEST_F(KnownDeviationsTest, AsAnnouncedIsXfail) {
  auto deviations = list(one);
  EXPECT_EQ(deviations.apply(suite_[0], failed("value"), note_).kind, VerdictKind::xfail);
  EXPECT_NE(note_.find("rounds twice"), std::string::npos);
  EXPECT_EQ(deviations.apply(suite_[1], failed("value"), note_).kind, VerdictKind::fail);
  EXPECT_TRUE(deviations.faults(suite_).empty());
}

TEST_F(KnownDeviationsTest, AStaleEntryFails) {
  auto deviations = list(one);
  EXPECT_EQ(deviations.apply(suite_[0], passed(), note_).kind, VerdictKind::xpass);
  auto vanished = list("- {id: 'T/C/gone*', verdict: fail, reason: r, expires: 2026-12-31}\n");
  EXPECT_EQ(vanished.faults(suite_).size(), 1u);
}

TEST_F(KnownDeviationsTest, AnotherReasonFails) {
  auto deviations = list(one);
  EXPECT_EQ(deviations.apply(suite_[0], failed("dtype"), note_).kind, VerdictKind::fail);
  EXPECT_EQ(deviations.faults(suite_).size(), 1u);
}

TEST_F(KnownDeviationsTest, AnExpiredEntryFails) {
  auto deviations = list("- {id: 'T/C/a*', verdict: fail, reason: r, expires: 2026-05-31}\n");
  EXPECT_EQ(deviations.apply(suite_[0], failed("value"), note_).kind, VerdictKind::fail);
  ASSERT_EQ(deviations.faults(suite_).size(), 1u);
  EXPECT_NE(deviations.faults(suite_)[0].find("expired on 2026-05-31"), std::string::npos);
}

TEST_F(KnownDeviationsTest, ABroadEntryFails) {
  std::vector<Case> many;
  for (int i = 0; i < 21; ++i) many.push_back(named("T/C/a" + std::to_string(i)));
  auto deviations = list("- {id: 'T/*', verdict: fail, reason: r, expires: 2026-12-31}\n");
  EXPECT_EQ(deviations.faults(many).size(), 1u);
  many.pop_back();
  EXPECT_TRUE(deviations.faults(many).empty());
}

TEST_F(KnownDeviationsTest, WhenLimitsIt) {
  auto deviations = list(
      "- {id: 'T/C/*', verdict: fail, when: {backend: nccl}, reason: r, expires: 2026-12-31}\n- {id: "
      "'T/C/*', verdict: fail, when: {backend: gloo, world: 2}, reason: s, expires: 2026-12-31}\n");
  EXPECT_EQ(deviations.apply(suite_[0], failed("value"), note_).kind, VerdictKind::xfail);
  EXPECT_NE(note_.find(": s"), std::string::npos);
}

TEST_F(KnownDeviationsTest, WhenTakesARangeOfVersionsOfTheImplementation) {
  auto deviations =
      list("- {id: 'T/C/*', verdict: fail, when: {version: '>=2.8 <2.9'}, reason: r, expires: 2026-12-31}\n");
  EXPECT_EQ(deviations.apply(suite_[0], failed("value"), note_).kind,
            VerdictKind::fail);  // nobody said hello
  deviations.know("version", "2.8.0+cu128");
  EXPECT_EQ(deviations.apply(suite_[0], failed("value"), note_).kind, VerdictKind::xfail);
  deviations.know("version", "2.9.1");
  EXPECT_EQ(deviations.apply(suite_[0], failed("value"), note_).kind, VerdictKind::fail);
  EXPECT_THROW(
      list("- {id: 'T/C/*', verdict: fail, when: {version: '2.8'}, reason: r, expires: 2026-12-31}\n"),
      DeviationFileError);
}

TEST_F(KnownDeviationsTest, FixRewrites) {
  auto deviations = list(
      "# a comment\n- {id: 'T/C/*', verdict: fail, locus: {code: value}, reason: r, url: "
      "'https://example.org/1', expires: 2026-12-31}\n- {id: 'T/D/*', verdict: fail, reason: gone, expires: "
      "2026-12-31}\n");
  deviations.apply(suite_[0], passed(), note_);
  deviations.apply(suite_[1], failed("dtype"), note_);
  deviations.rewrite(suite_);
  const auto entries = read_deviations(file_);
  ASSERT_EQ(entries.size(), 1u) << content();
  EXPECT_EQ(entries[0].id, "T/C/b[world=2]");
  EXPECT_EQ(entries[0].locus.at("code"), "dtype");
  EXPECT_EQ(entries[0].url, "https://example.org/1");
  KnownDeviations again(file_, {}, "2026-06-01");
  EXPECT_EQ(again.apply(suite_[1], failed("dtype"), note_).kind, VerdictKind::xfail);
  EXPECT_TRUE(again.faults(suite_).empty());
}

TEST_F(KnownDeviationsTest, WhatIsWrittenIsReadAgain) {
  KnownDeviation odd{
      "T/'C\"/*[x=1,y=#]",  VerdictKind::hang, {{"code", "2.10"}, {"what", "a: b"}}, {}, "two\nlines: é",
      "https://x/?a=b&c#d", "2026-12-31"};
  odd.when = {{"world", "2"}};
  write_deviations(file_, {odd});
  const auto read = read_deviations(file_);
  ASSERT_EQ(read.size(), 1u) << content();
  EXPECT_EQ(read[0].id, odd.id);
  EXPECT_EQ(read[0].verdict, odd.verdict);
  EXPECT_EQ(read[0].locus, odd.locus);
  EXPECT_EQ(read[0].when, odd.when);
  EXPECT_EQ(read[0].reason, odd.reason);
  EXPECT_EQ(read[0].url, odd.url);
  EXPECT_EQ(read[0].expires, odd.expires);
  write_deviations(file_, {});
  EXPECT_TRUE(read_deviations(file_).empty());
}

TEST_F(KnownDeviationsTest, NumbersAreTextAsTheyStand) {
  const auto read = parse_deviations(
      "- {id: a, verdict: fail, locus: {code: 2.10, rank: 01}, reason: 7, expires: 2026-12-31}\n", "x");
  EXPECT_EQ(read.at(0).locus.at("code"), "2.10");
  EXPECT_EQ(read.at(0).locus.at("rank"), "01");
  EXPECT_EQ(read.at(0).reason, "7");
}

TEST_F(KnownDeviationsTest, MistakesAreNamedWithTheirLine) {
  EXPECT_NE(fault_of("- {id: a, verdict: fail, reason: r, expires: 2026-12-31}\n- {id: a, verdict: pass, "
                     "reason: r, expires: 2026-12-31}\n")
                .find(":2: 'pass' cannot be announced"),
            std::string::npos);
  EXPECT_NE(fault_of("- {id: a, verdict: fail, expires: 2026-12-31}\n").find("no 'reason'"),
            std::string::npos);
  EXPECT_NE(fault_of("- {id: a, verdict: fail, reason: r}\n").find("no 'expires'"), std::string::npos);
  EXPECT_NE(fault_of("- {id: a, verdict: fail, reason: r, expires: soon}\n").find("'soon' is no date"),
            std::string::npos);
  EXPECT_NE(fault_of("- {id: a, verdict: fail, reason: r, expires: 2026-12-31, untill: x}\n")
                .find("unknown key 'untill'"),
            std::string::npos);
  EXPECT_NE(fault_of("- {id: a, verdict: fail, reason: r, expires: 2026-12-31}\n- {id: a, id: b}\n")
                .find(":2: key 'id' occurs twice"),
            std::string::npos);
  EXPECT_NE(fault_of("id: a\n").find("no list"), std::string::npos);
  EXPECT_NE(fault_of("- [\n").find(".yaml:"), std::string::npos);
}

}  // namespace
}  // namespace fsdp_cts
