// A vendor's list of known deviations (`run --known-deviations`): what is known to go wrong, why, and until
// when that is acceptable. A list that hides anything else fails the run.
//
// The form of the file stands in docs/known-deviations.md.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "harness/judge/known_deviation_file.hpp"
#include "harness/judge/verdict.hpp"
#include "harness/scenario/case.hpp"

namespace fsdp_cts {

constexpr int max_cases_per_deviation = 20;
constexpr std::size_t max_additions = 100;  // by one rewrite: a list of everything announces nothing

class KnownDeviations {
 public:
  // `context`: testee, backend, device of this run, for `when`. `today` as YYYY-MM-DD. Throws
  // DeviationFileError.
  KnownDeviations(const std::filesystem::path& file, std::map<std::string, std::string> context,
                  std::string today);

  // What only the testee's hello says, for `when`.
  void know(const std::string& key, const std::string& value) { context_[key] = value; }

  // The globs over case ids that the entries are for.
  std::vector<std::string> ids() const;

  // What the verdict becomes: xfail where it is as announced, xpass where it passed, itself otherwise. `note`
  // says why.
  Verdict apply(const Case& a_case, const Verdict& verdict, std::string& note);

  // Entries that are expired, too broad, for no case of the suite, or for another reason than announced; one
  // sentence each. `suite`: all its cases, or at least all that any of ids() matches.
  std::vector<std::string> faults(const std::vector<Case>& suite) const;

  // Writes the list as it should be after what was applied: entries that no longer hold are gone, verdicts
  // and loci are those seen, broad ones are split, and what deviates unannounced is added for 90 days, with a
  // reason for a person to fill in. Expired entries stay: only a person extends them. Returns a sentence
  // about it.
  std::string rewrite(const std::vector<Case>& suite) const;

 private:
  struct Seen {
    std::string case_id;
    Verdict verdict;
  };
  bool in_effect(const KnownDeviation& deviation, const Case& a_case) const;
  bool expired(const KnownDeviation& deviation) const { return deviation.expires < today_; }
  std::vector<KnownDeviation> fixed(const std::vector<Case>& suite) const;
  KnownDeviation announced(const Seen& seen) const;

  std::filesystem::path file_;
  std::map<std::string, std::string> context_;
  std::string today_;
  std::vector<KnownDeviation> entries_;
  std::vector<std::vector<Seen>> seen_;  // per entry
  std::vector<Seen> unannounced_;        // that could be
};

}  // namespace fsdp_cts
