// A vendor's list of known deviations (`run --expectations`): what is known to go wrong, why, and until when
// that is acceptable. A list that hides anything else fails the run.
//
//   - id: F2MP/*/test_reduce_dtype*      glob over case ids; at most 20 cases of the suite
//     verdict: fail                      fail | crash | hang | unresolved | unsupported
//     locus: {code: value, parameter: "0.*"}   optional: globs over code and divergence; another locus is
//     another bug when: {backend: nccl, world: 4}    optional: only with this testee, backend, device, world
//     reason: reduces in the parameter's dtype
//     url: https://…                     optional
//     expires: 2027-03-31                the last day it holds
#pragma once

#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/case/case.hpp"
#include "harness/judge/verdict.hpp"

namespace fsdp_cts {

// "file:line: what was found; what is allowed".
class DeviationFileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct KnownDeviation {
  std::string id;
  VerdictKind verdict = VerdictKind::fail;
  std::map<std::string, std::string> locus, when;
  std::string reason, url, expires;
  int line = 0;
};

constexpr int most_cases_per_deviation = 20;

class KnownDeviations {
 public:
  // `context`: testee, backend, device of this run, for `when`. `today` as YYYY-MM-DD. Throws
  // DeviationFileError.
  KnownDeviations(const std::filesystem::path& file, std::map<std::string, std::string> context,
                  std::string today);

  // What the verdict becomes: xfail where it is as announced, xpass where it passed, itself otherwise. `note`
  // says why.
  Verdict apply(const Case& a_case, const Verdict& verdict, std::string& note);

  // Entries that are expired, too broad, for no case of the suite, or for another reason than announced; one
  // sentence each.
  std::vector<std::string> faults(const std::vector<Case>& suite) const;

  // The list as it should be after what was applied: entries that no longer hold are gone, verdicts and loci
  // are those seen, broad ones are split. Expired entries stay: only a person extends them.
  void rewrite(const std::vector<Case>& suite) const;

 private:
  struct Seen {
    std::string case_id;
    Verdict verdict;
  };
  bool in_effect(const KnownDeviation& deviation, const Case& a_case) const;
  bool expired(const KnownDeviation& deviation) const { return deviation.expires < today_; }
  std::vector<KnownDeviation> fixed(const std::vector<Case>& suite) const;

  std::filesystem::path file_;
  std::map<std::string, std::string> context_;
  std::string today_;
  std::vector<KnownDeviation> entries_;
  std::vector<std::vector<Seen>> seen_;  // per entry
};

// Reading and writing the file (known_deviations_file.cpp).
std::vector<KnownDeviation> read_deviations(const std::filesystem::path& file);
void write_deviations(const std::filesystem::path& file, const std::vector<KnownDeviation>& deviations);

}  // namespace fsdp_cts
