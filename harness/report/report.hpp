// A report: what was run on whom, one record per case, totals. Reporters get it line by line; the NDJSON file
// keeps it, and every other format can be made from that file.
#pragma once

#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/case/case.hpp"
#include "harness/judge/verdict.hpp"

namespace fsdp_cts {

// Header: {type: "header", format: 1, suite, testee: {name, command, hello}, machine, selection: {filters,
// world, quick, level}, cases, order_seed, started}. Footer: {type: "footer", cases, verdicts: {pass: n, …},
// seconds, exit_code, sha256?}.
struct Report {
  Json header;
  std::vector<Json> cases;
  Json footer;
};

// The record of one case: {type: "case", id, scenario, seed, method, world, lane, requires, seed_cases,
// clauses, why, source, quirks, verdict, code, summary, divergence, counts, max_ulp, seconds, repeat, note?}.
// `repeat` is the command that runs this case again; `note` what an expectation file says about it.
Json case_record(const Case& a_case, const Verdict& verdict, const std::string& repeat,
                 const std::string& note = "");

// How many cases of each verdict, in the order of VerdictKind; absent ones left out.
Json count_verdicts(const std::vector<Json>& records);

// The exit code the counts deserve: 0 all as expected, 1 not, 77 nothing but skipped and unsupported, 2 no
// case at all.
int exit_code(const Json& verdicts);

// "sum of elements compared" and alike over all records: {elements, exact_elements, tensors, collectives,
// checks}.
Json sum_counts(const std::vector<Json>& records);

class Reporter {
 public:
  virtual ~Reporter() = default;
  virtual void begin(const Json& header) = 0;
  virtual void add(const Json& record) = 0;
  virtual void finish(const Json& footer) = 0;
};

}  // namespace fsdp_cts
