// A report: what was run on whom, one record per case, totals. Reporters get it line by line; the NDJSON file
// keeps it, and every other format can be made from that file.
#pragma once

#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "harness/judge/verdict.hpp"
#include "harness/scenario/case.hpp"

namespace fsdp_cts {

// Header: {type: "header", format: 1, suite, testee: {name, command, hello}, machine, recordings, selection:
// {filters, world, quick, level}, cases, order_seed, started}. Footer: {type: "footer", cases, verdicts:
// {pass: n, …}, seconds, exit_code, sha256?}.
struct Report {
  Json header;
  std::vector<Json> cases;
  Json footer;
};

// The record of one case: {type: "case", id, scenario, seed, method, world, lane, requires, seed_cases,
// fingerprint, clauses, why, source, quirks, verdict, code, summary, divergence, counts, max_ulp, max_noise,
// seconds, repeat, note?}. `fingerprint` names the program that was run: cases that differ only in what a CPU
// cannot show have the same. `counts.truths` says how many comparisons each truth judged and from how many
// the recording was left out. `repeat` is the command that runs this case again; `note` what the known
// deviations say about it.
Json case_record(const Case& a_case, const Verdict& verdict, const std::string& repeat,
                 const std::string& note = "");

// How many cases of each verdict, in the order of VerdictKind; absent ones left out.
Json count_verdicts(const std::vector<Json>& records);

// The exit code the counts deserve: 0 when every case passed, failed as announced or was skipped because this
// machine cannot show it, and at least one was judged; 77 when all were skipped; 1 otherwise; 2 no case at
// all. `unsupported` is the testee's word and excuses nothing: it is announced, or not asked for.
int exit_code(const Json& verdicts);

// What was compared, over all records and over distinct programs (each fingerprint once, its first record):
// {elements, exact_elements, tensors, collectives, checks, cases, numeric_cases, exact_cases, truths:
// {reference, golden, golden_left_out}} and `distinct` with the same keys. `cases` are those judged;
// `numeric_cases` those of the exact and the tolerance lane.
Json sum_counts(const std::vector<Json>& records);

// What the harness did not see itself: observations that are the testee's word about itself. Everything else
// (values, shapes, dtypes, which rank holds which shard) is computed from the bytes that ranks hand over.
inline constexpr std::string_view self_reported =
    "units and their settings, counters, training state, warnings and the traces of collectives";

class Reporter {
 public:
  virtual ~Reporter() = default;
  virtual void begin(const Json& header) = 0;
  virtual void add(const Json& record) = 0;
  virtual void finish(const Json& footer) = 0;
};

}  // namespace fsdp_cts
