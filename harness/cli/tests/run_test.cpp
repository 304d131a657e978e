// fsdp-cts from outside: exit codes, faults and their verdicts, reports, recordings.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
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

TEST_F(RunTest, AForkServerStartsTheTesteesProgramOnce) {
  cts.record();
  const fs::path starts = cts.folder() / "starts", script = cts.folder() / "testee.sh";
  std::ofstream(script) << "echo >> " << starts.string() << "\nexec " << FAULT_TESTEE << "\n";
  const auto starts_with = [&](const std::string& option) {
    fs::remove(starts);
    const Ran ran =
        cts(fmt::format("run T/TestCommandLine/test_parameters --testee 'sh {}' --golden store --jobs 1 {}",
                        script.string(), option));
    EXPECT_EQ(ran.exit_code, 0) << ran.output;
    return fs::file_size(starts);
  };
  EXPECT_EQ(starts_with(""), 2u);  // one of each rank
  EXPECT_EQ(starts_with("--fork-server"), 1u);
}

TEST_F(RunTest, RunsOfABatchShareAForkServerAndHaveVerdictsOfTheirOwn) {
  cts.record();
  const fs::path starts = cts.folder() / "starts", script = cts.folder() / "testee.sh";
  std::ofstream(script) << "echo >> " << starts.string() << "\nexec " << FAULT_TESTEE << " \"$@\"\n";
  const std::string run =
      fmt::format("T/TestCommandLine/test_parameters --testee 'sh {}' --golden store --jobs 1 --fork-server",
                  script.string());
  std::ofstream(cts.folder() / "lines") << run << " --report first.ndjson\n# a comment\n\nnobody/knows\n"
                                        << run << " --report second.ndjson\n";
  const Ran ran = cts("batch lines");
  EXPECT_EQ(ran.exit_code, 2) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("batch: line 1 ended with exit code 0"));
  EXPECT_THAT(ran.output, HasSubstr("batch: line 4 ended with exit code 2"));
  EXPECT_THAT(ran.output, HasSubstr("batch: line 5 ended with exit code 0"));
  EXPECT_EQ(fs::file_size(starts), 1u);
  for (const char* report : {"first.ndjson", "second.ndjson"})
    EXPECT_EQ(read_report(cts.folder() / report).footer["verdicts"], (Json{{"pass", 2}})) << report;
}

TEST_F(RunTest, ABatchThatIsNotThere) {
  const Ran ran = cts("batch nowhere");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.output, HasSubstr("nowhere cannot be read"));
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

TEST_F(RunTest, ADeviceThatATesteeDoesNotHave) {
  const Ran ran = cts("run T/TestCommandLine/test_parameters --testee mutant:sum_for_mean --device cuda");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.output, HasSubstr("--testee mutant:sum_for_mean has no device 'cuda'; there are cpu, sim"));
}

TEST_F(RunTest, OptionsOfTheSimulatedAcceleratorThatCannotBeFollowed) {
  const std::pair<const char*, const char*> wrong[] = {
      {"--sim-machine slow", "--sim-machine is of the simulated accelerator, and needs --device sim"},
      {"--sim-memory 64MB --device cpu", "needs --device sim"},
      {"--sim-trace traces", "needs --device sim"},
      {"--sim-machine h100 --device sim", "there is no machine 'h100'; there are h100-nvlink ("},
      {"--sim-trace traces --device sim", "needs --sim-machine: h100-nvlink ("},
      {"--sim-memory 0 --device sim",
       "needs a size above 0 such as 64MB, 512MiB or a number of bytes, not '0'"},
      {"--sim-memory much --device sim", "not 'much'"}};
  for (const auto& [options, sentence] : wrong) {
    const Ran ran = cts(fmt::format("run T/TestCommandLine/test_parameters {} {}", cts.fault(""), options));
    EXPECT_EQ(ran.exit_code, 2) << options << ran.output;
    EXPECT_THAT(ran.output, HasSubstr(sentence));
  }
}

TEST_F(RunTest, AllSkippedIsNeitherPassedNorFailed) {
  const Ran ran = cts(fmt::format("run T/TestCommandLine/test_parameters {} --device cuda", cts.fault("")));
  if (ran.output.find("no GPU") == std::string::npos) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_EQ(ran.exit_code, 77) << ran.output;
  EXPECT_EQ(cts("run T/TestCommandLine/test_needs_gpu --report out.ndjson").exit_code, 77);
  const Ran verified = cts("verify out.ndjson");
  EXPECT_EQ(verified.exit_code, 77) << verified.output;
  EXPECT_THAT(verified.output, HasSubstr("level: none: every case was skipped"));
}

TEST_F(RunTest, UnsupportedIsNotAsExpected) {
  cts.record();
  const Report all = report_of("unsupported", "--rank -1", 1);
  EXPECT_EQ(all.footer["verdicts"], (Json{{"unsupported", 2}}));
  const Report one = report_of("unsupported", "--rank -1 --when first=true", 1);
  EXPECT_EQ(one.footer["verdicts"], (Json{{"pass", 1}, {"unsupported", 1}}));
  const Ran ran = cts("report out.ndjson");
  EXPECT_THAT(ran.output, HasSubstr("1 unsupported: T/TestCommandLine/test_parameters: "));
}

TEST_F(RunTest, UnsupportedIsExpectedWhereItIsAnnounced) {
  cts.record();
  std::ofstream(cts.folder() / "known.yaml")
      << "- {id: '*first=true*', verdict: unsupported, reason: not yet, expires: 2999-01-01}\n";
  const std::string run =
      fmt::format("run --level parameters {} --known-deviations known.yaml --report out.ndjson",
                  cts.fault("unsupported", "--rank -1 --when first=true"));
  const Ran ran = cts(run);
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
  const Ran verified = cts("verify out.ndjson");
  EXPECT_EQ(verified.exit_code, 0) << verified.output;
  EXPECT_THAT(verified.output, HasSubstr("level: parameters (1 known deviations)"));
}

TEST_F(RunTest, KnownDeviationsHaveAFormerName) {
  cts.record();
  std::ofstream(cts.folder() / "known.yaml")
      << "- {id: '*first=true*', verdict: unsupported, reason: not yet, expires: 2999-01-01}\n";
  const Ran ran = cts(fmt::format("run --level parameters {} --expectations known.yaml",
                                  cts.fault("unsupported", "--rank -1 --when first=true")));
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
}

TEST_F(RunTest, FixAddsWhatDeviates) {
  cts.record();
  std::ofstream(cts.folder() / "known.yaml") << "";
  const std::string run = fmt::format("run --level parameters {} --known-deviations known.yaml",
                                      cts.fault("unsupported", "--rank -1 --when first=true"));
  const Ran fixed = cts(run + " --fix");
  EXPECT_EQ(fixed.exit_code, 1) << fixed.output;
  EXPECT_THAT(fixed.output, HasSubstr("0 entries before, 0 of them or in their place now, 1 added"));
  EXPECT_EQ(cts(run).exit_code, 0);
}

TEST_F(RunTest, ALevelSelectsAndDemandsItsCases) {
  cts.record();
  const Ran reached = cts(fmt::format("run --level parameters {} --report out.ndjson", cts.fault("")));
  EXPECT_EQ(reached.exit_code, 0) << reached.output;
  EXPECT_THAT(cts("verify out.ndjson").output, HasSubstr("level: parameters"));
  EXPECT_EQ(cts("verify out.ndjson --level quick").exit_code, 0);
  const Ran more = cts("verify out.ndjson --level vanished");
  EXPECT_EQ(more.exit_code, 1);
  EXPECT_THAT(more.output, HasSubstr("level: none: of 'vanished', 2 cases of"));
  const Ran vanished = cts(fmt::format("run --level vanished {}", cts.fault("")));
  EXPECT_EQ(vanished.exit_code, 1) << vanished.output;
  EXPECT_THAT(vanished.output, HasSubstr("not in order: 2 cases of"));
  const Ran unknown = cts(fmt::format("run --level fully_shart {}", cts.fault("")));
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.output, HasSubstr("levels are full, parameters, quick, vanished"));
  EXPECT_EQ(cts(fmt::format("run --level parameters --world 2 {}", cts.fault(""))).exit_code, 2);
}

TEST_F(RunTest, APartReachesALevelOnlyIfThatIsAskedFor) {
  cts.record();
  report_of("", "", 0);
  const Ran part = cts("verify out.ndjson");
  EXPECT_EQ(part.exit_code, 1) << part.output;
  EXPECT_THAT(part.output, HasSubstr("only a part of the suite was selected"));
  EXPECT_EQ(cts("verify out.ndjson --partial").exit_code, 0);
  report_of("wrong_value", "", 1);
  EXPECT_EQ(cts("verify out.ndjson --partial").exit_code, 1);
}

TEST_F(RunTest, ATesteeThatIsNotThere) {
  const Ran ran = cts("run T/TestCommandLine/test_parameters --testee ./nobody");
  EXPECT_EQ(ran.exit_code, 1) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("SETUP_ERROR"));
}

TEST_F(RunTest, MutantsAreAProgramBesideThisOne) {
  fs::copy_file(FSDP_CTS_PROGRAM, cts.folder() / "fsdp-cts");
  const auto run = [&] {
    return std::system(
        fmt::format("cd {} && FSDP_CTS_ROOT={} ./fsdp-cts run T/TestCommandLine/test_parameters "
                    "--testee mutant:lost --backend shm > output.txt 2>&1",
                    cts.folder().string(), SMALL_SUITE)
            .c_str());
  };
  const auto content = [&](const char* name) {
    std::ifstream stream(cts.folder() / name);
    return std::string{std::istreambuf_iterator<char>(stream), {}};
  };
  EXPECT_NE(run(), 0);
  EXPECT_THAT(content("output.txt"), HasSubstr("fsdp_testee_mutants is not there"));
  for (const std::string name : {"fsdp_testee_mutants", "fsdp_reference"}) {
    std::ofstream(cts.folder() / name)
        << "#!/bin/sh\necho \"$FSDP_CTS_MUTANT: $@\" > " << name << ".arguments.txt\nexit 2\n";
    fs::permissions(cts.folder() / name, fs::perms::owner_all);
  }
  EXPECT_NE(run(), 0);
  EXPECT_EQ(content("fsdp_testee_mutants.arguments.txt"), "lost: --backend shm\n");
}

TEST_F(RunTest, OnlyPyTorchIsRecordedAndOnlyOneVersionOfIt) {
  const auto record = [&](const std::string& name_and_version) {
    return cts(fmt::format("run T/TestCommandLine/test_parameters --testee '{} {}' --record store",
                           FAULT_TESTEE, name_and_version));
  };
  const Ran other = record("--name mine");
  EXPECT_EQ(other.exit_code, 2) << other.output;
  EXPECT_THAT(other.output, HasSubstr("only PyTorch is recorded, and this testee is mine"));
  EXPECT_FALSE(fs::exists(cts.folder() / "store" / "index"));
  cts.record();
  const Ran later = record("--name pytorch --version 2.15.0");
  EXPECT_EQ(later.exit_code, 2) << later.output;
  EXPECT_THAT(later.output,
              HasSubstr("holds recordings of pytorch 2.11.0, and this testee is pytorch 2.15.0"));
}

TEST_F(RunTest, ARecordingSaysWhoMadeItAndHow) {
  cts.record();
  std::ifstream file(cts.folder() / "store/index/T/TestCommandLine/test_parameters.json");
  const Json index = Json::parse(file);
  for (const auto& [id, entry] : index.at("cases").items())
    EXPECT_EQ(entry.at("made_by"), (Json{{"name", "pytorch"}, {"version", "2.11.0"}})) << id;
  std::ifstream manifest(cts.folder() / "store/MANIFEST.json");
  EXPECT_EQ(
      Json::parse(manifest).at("commands").at(0),
      fmt::format(
          "fsdp-cts run T/TestCommandLine/test_parameters --testee '{} --name pytorch --version 2.11.0' "
          "--record store",
          FAULT_TESTEE));
}

TEST_F(RunTest, TheConsoleNamesVersionsAndAgainKeepsTheOptions) {
  cts.record();
  const Ran ran = cts("run T/TestCommandLine/test_parameters " +
                      cts.fault("wrong_value", "--name pytorch --version 2.15.0") + " --edition 2.12");
  EXPECT_THAT(ran.output,
              HasSubstr("testee pytorch 2.15.0 (none on cpu), recordings of pytorch 2.11.0, edition 2.12"));
  EXPECT_THAT(ran.output, HasSubstr("note: the testee is PyTorch 2.15.0 and is judged by the rules of 2.12"));
  EXPECT_THAT(ran.output, HasSubstr("--golden store --edition 2.12\n"));
  const Ran wrong = cts("run T/TestCommandLine/test_parameters --edition new " + cts.fault(""));
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.output, HasSubstr("--edition needs a PyTorch version such as 2.15, not 'new'"));
}

TEST_F(RunTest, ReplayTakesTheOptionsFromTheBundle) {
  cts.record();
  cts("run T/TestCommandLine/test_parameters " + cts.fault("wrong_value", "--when first=true") +
      " --edition 2.12");
  const Ran again = cts("replay out/failures/*");
  EXPECT_EQ(again.exit_code, 1) << again.output;
  EXPECT_THAT(again.output, HasSubstr("edition 2.12"));
}

TEST_F(RunTest, ATesteeWhoseInstrumentSeesNothingIsNotJudged) {
  cts.record();
  const Report report = report_of("blind_instrument", "--rank -1", 1);
  EXPECT_EQ(of(report, "first=true")["verdict"], "setup_error");
  EXPECT_EQ(of(report, "first=true")["code"], "instrument_blind");
}

TEST_F(RunTest, APythonForAnotherTesteeOrWithoutTorchIsRefused) {
  const Ran other = cts("run T/TestCommandLine/test_parameters --python /usr/bin/python3");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.output, HasSubstr("--python is for --testee pytorch; 'cpp' was asked for"));
  const Ran empty = cts("run T/TestCommandLine/test_parameters --testee pytorch --python /bin/false");
  EXPECT_EQ(empty.exit_code, 2);
  EXPECT_THAT(empty.output, HasSubstr("/bin/false is no Python with torch; `ci/setup` makes one"));
}

TEST_F(RunTest, SharedMemoryIsForThePyTorchThatItWasBuiltFor) {
  std::ofstream(cts.folder() / "python") << "#!/bin/sh\necho 2.99.1+cpu\n";
  fs::permissions(cts.folder() / "python", fs::perms::owner_all);
  fs::create_directories(cts.folder() / "root/golden/pytorch_testee");
  cts.copy_suite("root");
  const std::string line =
      "run T/TestCommandLine/test_parameters --root root --testee pytorch --backend shm "
      "--python ./python";
  const Ran other = cts(line);
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.output, HasSubstr("fsdp_c10d-torch2.99.so is not there, so the PyTorch 2.99.1+cpu of "
                                      "./python cannot use --backend shm"));
  const Ran recording = cts(line + " --record store");
  EXPECT_EQ(recording.exit_code, 2);
  EXPECT_THAT(recording.output, HasSubstr("--record is over Gloo"));
}

TEST_F(RunTest, ATesteeThatDoesNotStartIsTriedTwiceAndShown) {
  cts.copy_suite("own");
  const fs::path scenario = cts.folder() / "own/conformance/scenarios/t/test_parameters.yaml";
  std::ifstream stream(scenario);
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  text.replace(text.find("worlds: [2]"), 11, "worlds: [1, 2, 3, 4]");
  std::ofstream(scenario) << text;
  std::ofstream(cts.folder() / "testee.sh") << "#!/bin/sh\necho started >> starts.txt\n"
                                               "echo \"no module called $MISSING\" >&2\nexit 1\n";
  fs::permissions(cts.folder() / "testee.sh", fs::perms::owner_all);
  const Ran ran =
      cts("run T/TestCommandLine/test_parameters --root own --testee ./testee.sh --env MISSING=mine --report "
          "out.ndjson");
  EXPECT_EQ(ran.exit_code, 1) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("start_failed: rank 0 did not start: it ended with exit code 1"));
  EXPECT_THAT(ran.output, HasSubstr("| no module called mine"));
  EXPECT_THAT(ran.output, HasSubstr("bundle: out/failures/"));
  EXPECT_THAT(ran.output, HasSubstr(" --env MISSING=mine"));
  const Report report = read_report(cts.folder() / "out.ndjson");
  EXPECT_EQ(report.footer["verdicts"].value("crash", 0), 2);
  EXPECT_EQ(report.footer["verdicts"].value("setup_error", 0), 6);
  EXPECT_THAT(
      of(report, "world=4")["summary"].get<std::string>(),
      HasSubstr("not tried, because the testee did not start for T/TestCommandLine/test_parameters["));
  std::ifstream starts(cts.folder() / "starts.txt");
  EXPECT_EQ(std::count(std::istreambuf_iterator<char>(starts), {}, '\n'), 2);
  const fs::path bundle = cts.folder() / of(report, "world=1")["bundle"].get<std::string>();
  EXPECT_TRUE(fs::exists(bundle / "rank0.output.txt"));
}

// Case first=false loads what first=true saves.
TEST_F(RunTest, ACaseThatContinuesAnotherNeedsItsCheckpoint) {
  cts.copy_suite("own");
  const fs::path scenario = cts.folder() / "own/conformance/scenarios/t/test_parameters.yaml";
  std::ifstream stream(scenario);
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  const auto change = [&](const std::string& from, const std::string& to) {
    text.replace(text.find(from), from.size(), to);
  };
  change("worlds: [2]", "worlds: [2]\ncontinues: {when: \"!first\", first: true}");
  change("  - observe: [parameters]",
         "  - {save_checkpoint: native, when: first}\n  - observe: [parameters]");
  change("  - equal: {what: [parameters], to: [golden], tolerance: exact}\n    clause: FS-SHARD-1\n", "");
  std::ofstream(scenario) << text;
  const auto judged = [&](const std::string& fault, const std::string& more) {
    cts(fmt::format("run '*first=false*' --root own {} {} --report out.ndjson", cts.fault(fault), more));
    std::map<std::string, std::string> codes;
    for (const Json& record : read_report(cts.folder() / "out.ndjson").cases)
      codes[record["id"].get<std::string>().find("first=true") == std::string::npos ? "loads" : "saves"] =
          record["verdict"].get<std::string>() + "/" + record.value("code", "");
    return codes;
  };
  using Codes = std::map<std::string, std::string>;
  EXPECT_EQ(judged("", ""), (Codes{{"saves", "pass/pass"}, {"loads", "pass/pass"}}));
  EXPECT_EQ(judged("sigsegv", "").at("loads"), "unresolved/no_checkpoint");
  // A folder that is kept, but into which nothing was saved, is no checkpoint either.
  EXPECT_EQ(judged("sigsegv", "--checkpoints kept").at("loads"), "unresolved/no_checkpoint");
  const fs::path folder = fs::directory_iterator(cts.folder() / "kept")->path();
  std::ofstream(folder / "state") << "saved by somebody";
  EXPECT_EQ(judged("", "--checkpoints kept"), (Codes{{"loads", "pass/pass"}}));
}

TEST_F(RunTest, StopsAfterAsManyFailuresAsAsked) {
  cts.record();
  const auto verdicts = [&](const std::string& limit) {
    const Ran ran = cts(fmt::format("run T/TestCommandLine/test_parameters {} {} --jobs 1 --report a.ndjson",
                                    cts.fault("wrong_value"), limit));
    EXPECT_EQ(ran.exit_code, 1) << ran.output;
    return read_report(cts.folder() / "a.ndjson").footer["verdicts"].get<std::map<std::string, int>>();
  };
  const std::map<std::string, int> stopped{{"fail", 1}, {"skipped", 1}}, whole{{"fail", 2}};
  EXPECT_EQ(verdicts("--fail-fast"), stopped);
  EXPECT_EQ(verdicts("--max-failures 1"), stopped);
  EXPECT_EQ(verdicts("--max-failures 2"), whole);
  EXPECT_EQ(verdicts("--max-failures 0"), whole);
  EXPECT_EQ(cts("run --fail-fast --max-failures 2").exit_code, 2);
}

TEST_F(RunTest, AHangIsShownWithItsStacksAndTakesTheGivenTime) {
  cts.record();
  const Ran ran = cts(fmt::format("run T/TestCommandLine/test_parameters {} --timeout 1 --report a.ndjson",
                                  cts.fault("hang_in_collective", "--when first=true --peers-wait")));
  EXPECT_EQ(ran.exit_code, 1) << ran.output;
  const Report report = read_report(cts.folder() / "a.ndjson");
  EXPECT_EQ(of(report, "first=true")["verdict"], "hang");
  EXPECT_LT(of(report, "first=true")["seconds"].get<double>(), 10);
  EXPECT_THAT(ran.output, HasSubstr("stacks of the rank"));
}

TEST_F(RunTest, MustRunNoticesWhatVanished) {
  cts.record();
  std::ofstream(cts.folder() / "must.txt") << "# all of it\nT/TestCommandLine/test_parameters* >= 2\n";
  EXPECT_EQ(cts(fmt::format("run {} --must-run must.txt", cts.fault(""))).exit_code, 0);
  const Ran ran = cts(fmt::format("run --quick {} --must-run must.txt", cts.fault("")));
  EXPECT_EQ(ran.exit_code, 1) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("the must-run list demands 2"));
}

TEST_F(RunTest, AFewCasesOfEveryScenarioAreNoLevel) {
  cts.record();
  const Ran ran = cts(fmt::format("run --per-scenario 1 {} --report few.ndjson", cts.fault("")));
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
  const Report report = read_report(cts.folder() / "few.ndjson");
  std::map<std::string, int> cases;
  for (const Json& record : report.cases) ++cases[record["scenario"]];
  EXPECT_FALSE(cases.empty());
  for (const auto& [scenario, count] : cases) EXPECT_EQ(count, 1) << scenario;
  EXPECT_EQ(report.header["selection"]["level"], "partial");
  EXPECT_EQ(cts(fmt::format("run --level quick --per-scenario 1 {}", cts.fault(""))).exit_code, 2);
}

TEST_F(RunTest, KnownDeviationsAreExcusedAndStaleOnesAreNot) {
  cts.record();
  std::ofstream(cts.folder() / "known.yaml")
      << "- {id: '*first=true*', verdict: fail, locus: {code: value}, reason: known, expires: 2999-01-01}\n";
  EXPECT_EQ(cts(fmt::format("run T/TestCommandLine/test_parameters {} --known-deviations known.yaml",
                            cts.fault("wrong_value", "--when first=true")))
                .exit_code,
            0);
  const Ran stale = cts(
      fmt::format("run T/TestCommandLine/test_parameters {} --known-deviations known.yaml", cts.fault("")));
  EXPECT_EQ(stale.exit_code, 1);
  EXPECT_THAT(stale.output, HasSubstr("XPASS"));
  EXPECT_EQ(cts(fmt::format("run T/TestCommandLine/test_parameters {} --known-deviations known.yaml --fix",
                            cts.fault("")))
                .exit_code,
            1);
  EXPECT_EQ(cts(fmt::format("run T/TestCommandLine/test_parameters {} --known-deviations known.yaml",
                            cts.fault("")))
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

TEST_F(RunTest, ReportsOfAnEarlierRunAreGoneIfThisOneCannotBegin) {
  for (const char* file : {"a.xml", "a.html"}) std::ofstream(cts.folder() / file) << "3 passed";
  EXPECT_EQ(
      cts(fmt::format("run {} --report /proc/nowhere/a.ndjson --junit a.xml --html a.html", cts.fault("")))
          .exit_code,
      2);
  for (const char* file : {"a.xml", "a.html"}) EXPECT_FALSE(fs::exists(cts.folder() / file)) << file;
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

TEST_F(RunTest, AMethodPassesWhenEveryCaseOfItPassed) {
  cts.record();
  const auto coverage = [&](const std::string& run) {
    cts(run + " --report out.ndjson");
    return cts("coverage --report out.ndjson").output;
  };
  const std::string all = "run T/TestCommandLine/test_parameters ";
  EXPECT_THAT(coverage(all + cts.fault("")), HasSubstr(", passing  TestCommandLine/test_parameters"));
  EXPECT_THAT(coverage(all + cts.fault("")), HasSubstr("1 methods pass in the report given"));
  EXPECT_THAT(coverage(all + cts.fault("wrong_value", "--when first=true")),
              HasSubstr("NOT passing: 1 of 2 passed, 1 fail"));
  EXPECT_THAT(coverage(all + cts.fault("unsupported", "--rank -1 --when first=true")),
              HasSubstr("NOT passing: 1 of 2 passed, 1 unsupported"));
  EXPECT_THAT(coverage("run --quick " + cts.fault("")), HasSubstr("NOT passing: 1 of 2 passed, 1 not run"));
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

// So a contributor's command costs what it selects, and still looks at the whole file.
TEST_F(RunTest, ListWithAFilterChecksTheFilesOfWhatItSelects) {
  cts.copy_suite("own");
  const fs::path scenarios = cts.folder() / "own/conformance/scenarios/t";
  std::ifstream stream(scenarios / "test_parameters.yaml");
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  const std::string id = "T/TestCommandLine/test_parameters";
  text.replace(text.find(id), id.size(), "T/TestOther/test_parameters");
  const auto clauses = text.find("clauses: [") + 10;
  text.insert(clauses, "FS-NO-1, ");
  std::ofstream(scenarios / "other.yaml") << text;

  const Ran of_sound_file = cts("list 'T/TestCommandLine/*' --root own");
  EXPECT_EQ(of_sound_file.exit_code, 0) << of_sound_file.output;
  EXPECT_THAT(of_sound_file.output, HasSubstr("3 cases"));
  for (const char* command : {"list 'T/TestOther/*first=true*' --root own", "list --root own"}) {
    const Ran of_other = cts(command);
    EXPECT_EQ(of_other.exit_code, 2) << command;
    EXPECT_THAT(of_other.output, HasSubstr("clause FS-NO-1 is not in clauses.md")) << command;
  }
}

TEST_F(RunTest, MistakesInScenariosAreToldWithTheirPlace) {
  fs::create_directories(cts.folder() / "own/conformance/scenarios");
  std::ofstream(cts.folder() / "own/conformance/scenarios/bad.yaml") << "id: T/C/bad\nlanes: exact\n";
  std::ofstream(cts.folder() / "own/conformance/clauses.md") << "| G-1 | MUST | a rule | own |\n";
  const Ran ran = cts("list --root own");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.output, HasSubstr("bad.yaml:2"));
  EXPECT_EQ(cts("list --root nowhere").exit_code, 2);
}

}  // namespace
}  // namespace fsdp_cts
