// A small report for tests: one pass, one fail, one skipped.
#pragma once

#include "harness/report/report.hpp"

namespace fsdp_cts {

inline Case sample_case(const std::string& id) {
  Case result;
  result.id = id;
  result.scenario = result.method = id.substr(0, id.find('['));
  result.seed = "T";
  result.world = 2;
  result.why = "because of <tags> & \"quotes\"";
  result.source = "seed T, lines 1-2";
  return result;
}

inline Json sample_record(const std::string& id, VerdictKind kind, const std::string& summary) {
  Verdict verdict;
  verdict.case_id = id;
  verdict.kind = kind;
  verdict.code = kind == VerdictKind::pass ? "pass" : "value";
  verdict.summary = summary;
  if (kind == VerdictKind::fail)
    verdict.divergence = {{"expectation", "equal"}, {"step", 6},      {"parameter", "0.weight"}, {"rank", 1},
                          {"actual", 2.5},          {"expected", 2.0}};
  verdict.counts = {.elements = 1000,
                    .exact_elements = 900,
                    .tensors = 10,
                    .collectives = 3,
                    .witnessed = 1,
                    .checks = 5,
                    .ranks = 2,
                    .truths = {4, 3, 1}};
  verdict.seconds = 0.0123;
  return case_record(sample_case(id), verdict, "fsdp-cts run '" + id + "'");
}

inline Report sample_report() {
  Report report;
  report.cases = {
      sample_record("T/Class/one[world=2]", VerdictKind::pass, ""),
      sample_record("T/Class/two[world=2]", VerdictKind::fail, "gradients of 0.weight: 2.5 <> 2"),
      sample_record("T/Class/three[world=2]", VerdictKind::skipped, "needs a GPU, this machine has none")};
  report.header = {{"type", "header"},
                   {"format", 1},
                   {"suite", "0.2.0"},
                   {"testee", {{"name", "cpp"}, {"hello", nullptr}}},
                   {"machine", {{"cpu", "a CPU"}, {"cores", 2}}},
                   {"selection",
                    {{"filters", Json::array()},
                     {"level", "full"},
                     {"scenarios", {{"T/Class/one", 1}, {"T/Class/two", 1}, {"T/Class/three", 1}}}}},
                   {"cases", 3}};
  report.footer = {{"type", "footer"},
                   {"cases", 3},
                   {"verdicts", count_verdicts(report.cases)},
                   {"seconds", 1.5},
                   {"faults", Json::array()},
                   {"exit_code", 1}};
  return report;
}

}  // namespace fsdp_cts
