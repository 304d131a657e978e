// fsdp-cts from outside: exit codes, faults and their verdicts, reports, recordings.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "harness/cli/tests/command_line.hpp"
#include "harness/report/ndjson.hpp"

namespace fsdp_cts {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class RunTest : public ::testing::Test {
 protected:
  // The report of one run on the testee with this fault. Case `first=true` is spoiled, `first=false` is not.
  Report report_of(const std::string& fault, const std::string& more, int due_exit_code) {
    const Ran ran = cts(
        fmt::format("run T/TestCommandLine/test_parameters {} --report out.ndjson", cts.fault(fault, more)));
    EXPECT_EQ(ran.exit_code, due_exit_code) << ran.output;
    return read_report(cts.folder() / "out.ndjson");
  }
  static const Json& of(const Report& report, const std::string& part) {
    for (const Json& record : report.cases) {
      if (record["id"].get<std::string>().find(part) != std::string::npos) return record;
    }
    throw std::runtime_error("the report has no case " + part);
  }

  CommandLine cts;
};

TEST_F(RunTest, AnHonestTesteePasses) {
  cts.record();
  const Report report = report_of("", "", 0);
  EXPECT_EQ(report.footer["verdicts"], (Json{{"pass", 2}}));
  EXPECT_EQ(of(report, "first=true")["counts"]["elements"], 4 * 8 + 8 + 8 * 4 + 4);
  EXPECT_EQ(report.header["testee"]["hello"]["implementation"]["name"], "fault_testee");
}

TEST_F(RunTest, WithoutRecordingItIsTheSuitesFault) {
  const Report report = report_of("", "", 1);
  EXPECT_EQ(of(report, "first=true")["verdict"], "setup_error");
  EXPECT_EQ(of(report, "first=true")["code"], "golden_missing");
}

struct Fault {
  const char* name;
  const char* verdict;
  const char* code;
};

class FaultTest : public RunTest, public ::testing::WithParamInterface<Fault> {};

TEST_P(FaultTest, HasItsVerdictNamesTheRankAndLeavesOtherCasesAlone) {
  cts.record();
  const Report report = report_of(GetParam().name, "--rank 1 --step 2 --when first=true", 1);
  const Json& spoiled = of(report, "first=true");
  EXPECT_EQ(spoiled["verdict"], GetParam().verdict) << spoiled["summary"];
  EXPECT_EQ(spoiled["code"], GetParam().code) << spoiled["summary"];
  // Elements that nobody holds are missed by all ranks alike.
  if (std::string(GetParam().code) != "shard_missing") {
    EXPECT_EQ(spoiled["divergence"]["rank"], 1) << spoiled.dump(1);
  }
  EXPECT_EQ(of(report, "first=false")["verdict"], "pass");
}

INSTANTIATE_TEST_SUITE_P(
    Faults, FaultTest,
    ::testing::Values(Fault{"wrong_value", "fail", "value"}, Fault{"wrong_shape", "fail", "shape"},
                      Fault{"wrong_dtype", "fail", "dtype"}, Fault{"nan", "fail", "nan"},
                      Fault{"overlapping_shard", "fail", "shard_overlap"},
                      Fault{"missing_shard", "fail", "shard_missing"},
                      Fault{"empty_answer", "fail", "empty_answer"}, Fault{"sigsegv", "crash", "signal"},
                      Fault{"exit_3", "crash", "exit"}, Fault{"exception", "fail", "exception"}),
    [](const auto& fault) { return std::string(fault.param.name); });

TEST_F(RunTest, FailuresLeaveABundleThatReplays) {
  cts.record();
  const Report report = report_of("wrong_value", "--when first=true", 1);
  const fs::path bundle = cts.folder() / of(report, "first=true")["bundle"].get<std::string>();
  for (const char* part : {"case.json", "data.safetensors", "verdict.json", "repeat.txt",
                           "observations/rank1-step2.safetensors"}) {
    EXPECT_TRUE(fs::exists(bundle / part)) << part;
  }
  const Ran again = cts("replay " + bundle.string() + " --golden store");
  EXPECT_EQ(again.exit_code, 1) << again.output;
  EXPECT_THAT(again.output, HasSubstr("FAIL T/TestCommandLine/test_parameters[first=true,world=2]"));
}

TEST_F(RunTest, NothingSelectedIsAnError) {
  for (const char* filter : {"T/Nobody/*", "T/TestCommandLine/test_parametres", "lane:exact", "seed:F2MP"}) {
    const Ran ran = cts(fmt::format("run '{}' {}", filter, cts.fault("")));
    EXPECT_EQ(ran.exit_code, 2) << filter << ran.output;
  }
  EXPECT_THAT(cts("run T/TestCommandLine/test_parametres").output,
              HasSubstr("did you mean 'T/TestCommandLine/test_parameters'?"));
  EXPECT_THAT(cts("run T/TestCommandLine/test_parameters lane:structure").output,
              HasSubstr("no case matches all of them"));
  EXPECT_EQ(cts("run 'colour:red'").exit_code, 2);
  EXPECT_EQ(cts("run --no-such-option").exit_code, 2);
  EXPECT_EQ(cts("").exit_code, 2);
}

TEST_F(RunTest, AllSkippedIsNeitherPassedNorFailed) {
  const Ran ran = cts(fmt::format("run T/TestCommandLine/test_parameters {} --device cuda", cts.fault("")));
  if (ran.output.find("no GPU") == std::string::npos) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_EQ(ran.exit_code, 77) << ran.output;
  EXPECT_EQ(cts("run T/TestCommandLine/test_needs_gpu").exit_code, 77);
}

TEST_F(RunTest, AllUnsupportedIsNeitherPassedNorFailed) {
  cts.record();
  const Report report = report_of("unsupported", "--rank -1", 77);
  EXPECT_EQ(report.footer["verdicts"], (Json{{"unsupported", 2}}));
}

TEST_F(RunTest, ATesteeThatIsNotThere) {
  const Ran ran = cts("run T/TestCommandLine/test_parameters --testee ./nobody");
  EXPECT_EQ(ran.exit_code, 1) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("SETUP_ERROR"));
}

TEST_F(RunTest, MustRunNoticesWhatVanished) {
  cts.record();
  std::ofstream(cts.folder() / "must.txt") << "# all of it\nT/TestCommandLine/test_parameters* >= 2\n";
  EXPECT_EQ(cts(fmt::format("run {} --must-run must.txt", cts.fault(""))).exit_code, 0);
  const Ran ran = cts(fmt::format("run --quick {} --must-run must.txt", cts.fault("")));
  EXPECT_EQ(ran.exit_code, 1) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("the must-run list demands 2"));
}

TEST_F(RunTest, KnownDeviationsAreExcusedAndStaleOnesAreNot) {
  cts.record();
  std::ofstream(cts.folder() / "known.yaml")
      << "- {id: '*first=true*', verdict: fail, locus: {code: value}, reason: known, expires: 2999-01-01}\n";
  EXPECT_EQ(cts(fmt::format("run T/TestCommandLine/test_parameters {} --expectations known.yaml",
                            cts.fault("wrong_value", "--when first=true")))
                .exit_code,
            0);
  const Ran stale =
      cts(fmt::format("run T/TestCommandLine/test_parameters {} --expectations known.yaml", cts.fault("")));
  EXPECT_EQ(stale.exit_code, 1);
  EXPECT_THAT(stale.output, HasSubstr("XPASS"));
  EXPECT_EQ(cts(fmt::format("run T/TestCommandLine/test_parameters {} --expectations known.yaml --fix",
                            cts.fault("")))
                .exit_code,
            1);
  EXPECT_EQ(
      cts(fmt::format("run T/TestCommandLine/test_parameters {} --expectations known.yaml", cts.fault("")))
          .exit_code,
      0);
}

TEST_F(RunTest, TheOrderOfCasesDoesNotChangeVerdicts) {
  cts.record();
  for (int seed : {1, 2, 3})
    EXPECT_EQ(
        cts(fmt::format("run T/TestCommandLine/test_parameters {} --seed {} --jobs 1", cts.fault(""), seed))
            .exit_code,
        0);
}

TEST_F(RunTest, ARankThatDiesAfterItsLastCaseIsNoticed) {
  cts.record();
  const Ran ran = cts(fmt::format("run T/TestCommandLine/test_parameters {}", cts.fault("bye_sigsegv")));
  EXPECT_EQ(ran.exit_code, 1) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("not in order:"));
}

TEST_F(RunTest, ReportsInEveryFormat) {
  cts.record();
  const Ran ran = cts(fmt::format("run {} --report a.ndjson --junit a.xml --html a.html", cts.fault("")));
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
  for (const char* file : {"a.ndjson", "a.xml", "a.html"})
    EXPECT_TRUE(fs::exists(cts.folder() / file)) << file;
  EXPECT_EQ(cts("report a.ndjson --html b.html --junit b.xml").exit_code, 0);
  EXPECT_THAT(cts("report a.ndjson").output, HasSubstr("3 cases on"));
  EXPECT_EQ(Json::parse(cts("report a.ndjson --json").output)["cases"].size(), 3u);
  const Ran verified = cts("verify a.ndjson");
  EXPECT_EQ(verified.exit_code, 0) << verified.output;
  EXPECT_THAT(verified.output, HasSubstr("level: full"));
}

TEST_F(RunTest, VerifyRefusesWhatIsNotWhole) {
  cts.record();
  cts(fmt::format("run {} --report a.ndjson", cts.fault("")));
  const fs::path file = cts.folder() / "a.ndjson";
  fs::resize_file(file, fs::file_size(file) - 10);
  EXPECT_EQ(cts("verify a.ndjson").exit_code, 2);
  EXPECT_EQ(cts("verify nobody.ndjson").exit_code, 2);
  EXPECT_EQ(cts("report a.ndjson").exit_code, 2);
  cts(fmt::format("run {} --report b.ndjson", cts.fault("wrong_value")));
  EXPECT_EQ(cts("verify b.ndjson").exit_code, 1);
}

TEST_F(RunTest, ListAndExplain) {
  const Ran list = cts("list --json");
  EXPECT_EQ(list.exit_code, 0);
  const Json rows = Json::parse(list.output);
  ASSERT_EQ(rows.size(), 3u);
  for (const char* key :
       {"id", "scenario", "seed", "world", "lane", "requires", "runnable", "reason", "seed_cases"})
    EXPECT_TRUE(rows[0].contains(key)) << key;
  EXPECT_THAT(cts("explain '*first=true*'").output, HasSubstr("What the fault testee can do"));
  EXPECT_EQ(cts("explain nobody").exit_code, 2);
  for (const char* command : {"list", "run", "coverage", "explain", "replay", "report", "verify", "bench"}) {
    const Ran help = cts(std::string(command) + " --help");
    EXPECT_EQ(help.exit_code, 0) << command;
    EXPECT_THAT(help.output, HasSubstr("Example")) << command;
  }
}

TEST_F(RunTest, MistakesInScenariosAreToldWithTheirPlace) {
  fs::create_directories(cts.folder() / "own/conformance/scenarios");
  std::ofstream(cts.folder() / "own/conformance/scenarios/bad.yaml") << "id: T/C/bad\nlanes: exact\n";
  const Ran ran = cts("list --root own");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.output, HasSubstr("bad.yaml:2"));
  EXPECT_EQ(cts("list --root nowhere").exit_code, 2);
}

}  // namespace
}  // namespace fsdp_cts
