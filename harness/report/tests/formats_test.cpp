// The formats for people and CI servers say what the report says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <pugixml.hpp>
#include <sstream>

#include "harness/report/console.hpp"
#include "harness/report/html.hpp"
#include "harness/report/junit.hpp"
#include "harness/report/tests/sample_report.hpp"

namespace fsdp_cts {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string read(const std::filesystem::path& file) {
  std::ostringstream all;
  all << std::ifstream(file, std::ios::binary).rdbuf();
  return all.str();
}

TEST(Console, MinutesHaveNoSixtySeconds) {
  Report report = sample_report();
  report.footer["seconds"] = 839.7;
  std::ostringstream out;
  ConsoleReporter console(out, false);
  console.begin(report.header);
  for (const Json& record : report.cases) console.add(record);
  console.finish(report.footer);
  EXPECT_THAT(out.str(), HasSubstr(" in 14 min 0 s\n"));
}

TEST(Console, ALinePerScenarioThenTheSummary) {
  std::ostringstream out;
  const Report report = sample_report();
  ConsoleReporter console(out, false);
  console.begin(report.header);
  for (const Json& record : report.cases) console.add(record);
  console.finish(report.footer);
  const std::string text = out.str();
  EXPECT_THAT(text, HasSubstr("ok T/Class/one: 1 pass"));
  EXPECT_THAT(text, HasSubstr("-- T/Class/two: 1 fail"));
  EXPECT_THAT(text, HasSubstr("FAIL T/Class/two[world=2]"));
  EXPECT_THAT(text, HasSubstr("parameter   0.weight"));
  EXPECT_THAT(text, HasSubstr("again: fsdp-cts run 'T/Class/two[world=2]'"));
  EXPECT_THAT(text, HasSubstr("3 cases on cpp: 1 pass, 1 skipped, 1 fail"));
  EXPECT_THAT(text, HasSubstr("1 skipped: needs a GPU"));
  EXPECT_THAT(text, HasSubstr("compared 2,000 elements"));
  EXPECT_THAT(text, HasSubstr("the recording was left out 2"));
  EXPECT_THAT(text,
              HasSubstr("6 collectives on every rank, 2 of them witnessed by the transport, the others as "
                        "reported by the testee"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST(Console, UnsupportedIsListedByScenarioAndIsNotInOrder) {
  std::ostringstream out;
  Report report = sample_report();
  report.cases[1] = sample_record("T/Class/two[world=2]", VerdictKind::unsupported, "not yet");
  report.footer["verdicts"] = count_verdicts(report.cases);
  ConsoleReporter console(out, false);
  console.begin(report.header);
  for (const Json& record : report.cases) console.add(record);
  console.finish(report.footer);
  EXPECT_THAT(out.str(), HasSubstr("-- T/Class/two: 1 unsupported"));
  EXPECT_THAT(out.str(), HasSubstr("1 unsupported: T/Class/two: not yet"));
  EXPECT_THAT(out.str(), HasSubstr("Announce it"));
  EXPECT_THAT(out.str(), Not(HasSubstr("UNSUPPORTED T/Class")));
}

TEST(Console, ProgressOnATerminalIsRewrittenInPlace) {
  std::ostringstream out;
  const Report report = sample_report();
  ConsoleReporter console(out, true);
  console.begin(report.header);
  console.add(report.cases[0]);
  console.add(report.cases[1]);
  EXPECT_THAT(out.str(), HasSubstr("\r\x1b[K2 of 3 done, 1 not passed, 1 left"));
}

TEST(Junit, CountsAndMessages) {
  const auto file = std::filesystem::path(::testing::TempDir()) / "formats-junit.xml";
  Report report = sample_report();
  report.cases[1]["summary"] = std::string("control \x01 character");
  write_junit(report, file);
  pugi::xml_document document;
  ASSERT_TRUE(document.load_file(file.c_str()));
  const auto suite = document.child("testsuites").child("testsuite");
  EXPECT_EQ(suite.attribute("tests").as_int(), 3);
  EXPECT_EQ(suite.attribute("failures").as_int(), 1);
  EXPECT_EQ(suite.attribute("errors").as_int(), 0);
  EXPECT_EQ(suite.attribute("skipped").as_int(), 1);
  const auto failed = suite.find_child_by_attribute("testcase", "name", "T/Class/two[world=2]");
  EXPECT_STREQ(failed.child("failure").attribute("type").as_string(), "fail:value");
  std::filesystem::remove(file);
}

TEST(Html, OneFileWithEverythingEscaped) {
  const auto file = std::filesystem::path(::testing::TempDir()) / "formats.html";
  Report report = sample_report();
  report.cases[1]["divergence"]["tensor"] =
      Json::parse(R"({"shape": [4], "differing": [[1, 1]], "not_shown": 0, "held": [[0, 0, 2], [1, 2, 2]]})");
  write_html(report, {{"T/Class/one[world=2]", "step <1>: build"}}, file);
  const std::string html = read(file);
  EXPECT_THAT(html, HasSubstr("<svg class=map"));
  EXPECT_THAT(html, Not(HasSubstr("not_shown"))) << "drawn, not printed";
  EXPECT_THAT(html, HasSubstr("1 of 3 cases are not as expected."));
  EXPECT_THAT(html, HasSubstr("2.5 &lt;&gt; 2"));
  EXPECT_THAT(html, HasSubstr("as reported by the testee"));
  EXPECT_THAT(html, HasSubstr("step &lt;1&gt;: build"));
  EXPECT_THAT(html, HasSubstr("because of &lt;tags&gt; &amp; &quot;quotes&quot;"));
  for (const char* external : {"http://", "https://", "src=", "@import", "<link"})
    EXPECT_THAT(html, Not(HasSubstr(external)));
  std::filesystem::remove(file);
}

TEST(Html, NothingJudgedIsNotGreen) {
  Report report = sample_report();
  report.cases = {report.cases[2]};
  report.footer["verdicts"] = count_verdicts(report.cases);
  const auto file = std::filesystem::path(::testing::TempDir()) / "formats-empty.html";
  write_html(report, {}, file);
  EXPECT_THAT(read(file), HasSubstr("Nothing was judged"));
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace fsdp_cts
