// A report is only worth something when a cut or altered one is noticed.
#include "harness/report/ndjson.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <sstream>

#include "harness/report/tests/sample_report.hpp"

namespace fsdp_cts {
namespace {

namespace fs = std::filesystem;

class NdjsonTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              ("ndjson-" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(folder_);
    file_ = folder_ / "report.ndjson";
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const Report& report) {
    NdjsonReporter reporter(file_);
    reporter.begin(report.header);
    for (const Json& record : report.cases) reporter.add(record);
    reporter.finish(report.footer);
  }
  std::string bytes() const {
    std::ostringstream all;
    all << std::ifstream(file_, std::ios::binary).rdbuf();
    return all.str();
  }
  std::string code_after(const std::function<void(std::string&)>& alter) {
    write(sample_report());
    std::string text = bytes();
    alter(text);
    std::ofstream(file_, std::ios::binary | std::ios::trunc) << text;
    try {
      read_report(file_);
      return "";
    } catch (const ReportError& error) {
      return error.code;
    }
  }

  fs::path folder_, file_;
};

TEST_F(NdjsonTest, ComesBackAsItWas) {
  write(sample_report());
  const Report report = read_report(file_);
  EXPECT_EQ(report.cases, sample_report().cases);
  EXPECT_EQ(report.header, sample_report().header);
  EXPECT_FALSE(fs::exists(file_.string() + ".partial"));
}

TEST_F(NdjsonTest, HasItsNameOnlyWhenComplete) {
  NdjsonReporter reporter(file_);
  reporter.begin(sample_report().header);
  reporter.add(sample_report().cases[0]);
  EXPECT_FALSE(fs::exists(file_));
  EXPECT_TRUE(fs::exists(file_.string() + ".partial"));
}

TEST_F(NdjsonTest, AnOldReportDoesNotOutliveANewRun) {
  write(sample_report());
  NdjsonReporter reporter(file_);
  EXPECT_FALSE(fs::exists(file_));
}

TEST_F(NdjsonTest, EveryTruncationIsNoticed) {
  write(sample_report());
  const std::string whole = bytes();
  for (std::size_t length = 0; length < whole.size(); length += 7) {
    std::ofstream(file_, std::ios::binary | std::ios::trunc) << whole.substr(0, length);
    EXPECT_THROW(read_report(file_), ReportError) << length;
  }
}

TEST_F(NdjsonTest, EveryKindOfTamperingHasItsCode) {
  EXPECT_EQ(code_after([](std::string&) {}), "");
  EXPECT_EQ(code_after([](std::string& text) { text.replace(text.find("\"fail\""), 6, "\"pass\""); }),
            "tampered");
  EXPECT_EQ(code_after([](std::string& text) { text.erase(text.rfind("{\"type\":\"footer\"")); }),
            "no_footer");
  EXPECT_EQ(code_after([](std::string& text) { text.pop_back(); }), "no_footer");
  EXPECT_EQ(code_after([](std::string& text) { text.clear(); }), "no_header");
  EXPECT_EQ(code_after([](std::string& text) { text = "not a report\n"; }), "not_json");
  EXPECT_EQ(code_after([](std::string& text) { text += text.substr(0, text.find('\n') + 1); }),
            "content_after_footer");
  EXPECT_EQ(code_after([](std::string& text) { text.erase(0, text.find('\n') + 1); }), "no_header");
}

TEST_F(NdjsonTest, CountsMustBeThoseOfTheLines) {
  Report report = sample_report();
  report.footer["verdicts"] = {{"pass", 3}};
  write(report);
  EXPECT_THROW(
      try { read_report(file_); } catch (const ReportError& error) {
        EXPECT_EQ(error.code, "verdict_counts");
        throw;
      },
      ReportError);
  report = sample_report();
  report.header["cases"] = 4;
  write(report);
  EXPECT_THROW(
      try { read_report(file_); } catch (const ReportError& error) {
        EXPECT_EQ(error.code, "case_count");
        throw;
      },
      ReportError);
  report = sample_report();
  report.cases[1] = report.cases[0];
  report.footer["verdicts"] = count_verdicts(report.cases);
  write(report);
  EXPECT_THROW(
      try { read_report(file_); } catch (const ReportError& error) {
        EXPECT_EQ(error.code, "duplicate_case");
        throw;
      },
      ReportError);
}

TEST_F(NdjsonTest, TheExitCodeMustBeThatOfTheVerdicts) {
  Report report = sample_report();
  report.footer["exit_code"] = 0;
  write(report);
  EXPECT_THROW(
      try { read_report(file_); } catch (const ReportError& error) {
        EXPECT_EQ(error.code, "exit_code");
        throw;
      },
      ReportError);
}

TEST(Counts, ProgramsThatRunSeveralTimesCountOnce) {
  Report report = sample_report();
  report.cases[1] = report.cases[0];
  report.cases[1]["id"] = "T/Class/again[world=2]";
  const Json sums = sum_counts(report.cases);
  EXPECT_EQ(sums["cases"], 2);
  EXPECT_EQ(sums["elements"], 2000);
  EXPECT_EQ(sums["distinct"]["cases"], 1);
  EXPECT_EQ(sums["distinct"]["elements"], 1000);
  EXPECT_EQ(sums["truths"], (Json{{"reference", 8}, {"golden", 6}, {"golden_left_out", 2}}));
}

TEST_F(NdjsonTest, BrokenUtf8DoesNotStopTheReport) {
  Report report = sample_report();
  report.cases[1]["summary"] = "bytes \xff\xfe";
  write(report);
  EXPECT_EQ(read_report(file_).cases.size(), 3u);
}

TEST(ExitCode, SaysWhatHappened) {
  EXPECT_EQ(exit_code(Json::object()), 2);
  EXPECT_EQ(exit_code({{"pass", 3}}), 0);
  EXPECT_EQ(exit_code({{"pass", 3}, {"skipped", 1}, {"xfail", 1}}), 0);
  EXPECT_EQ(exit_code({{"skipped", 3}}), 77);
  EXPECT_EQ(exit_code({{"skipped", 3}, {"unsupported", 2}}), 1);
  for (const char* bad :
       {"unsupported", "xpass", "flaky", "unresolved", "fail", "crash", "hang", "setup_error"}) {
    EXPECT_EQ(exit_code({{"pass", 3}, {bad, 1}}), 1) << bad;
  }
}

}  // namespace
}  // namespace fsdp_cts
