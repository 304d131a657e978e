// Where the suite's own parts are: scenarios, recordings, programs. And the options every command shares.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/scenario/case.hpp"

namespace fsdp_cts {

struct Suite {
  std::filesystem::path
      root;  // the source tree: --root, else FSDP_CTS_ROOT, else where this program was built from
  std::filesystem::path bin;  // the folder of this program: testee and reference lie beside it

  std::filesystem::path conformance() const { return root / "conformance"; }
  std::filesystem::path golden_store() const { return root / "golden" / "store"; }
  // What `golden/record --here` fills: recordings of this machine, kept out of the repository.
  std::filesystem::path own_store() const { return root / "out" / "golden-here"; }
};

// `root_option` is the value of --root, "" when it was not given.
Suite find_suite(const std::string& root_option);

std::string suite_version();

// Invalid use: a message for a person; the program exits with 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The cases the filters select, in file order; all of them without a filter. Of files that no filter selects
// only the form is checked, so a single case starts at once however large the suite is. Throws UsageError
// with a hint when nothing is selected.
std::vector<Case> select(const Suite& suite, const std::vector<std::string>& filters);

// The same, after the files that have a selected case were checked whole; without a filter the suite as a whole
// (scenario/catalogue/lint.hpp). Throws ScenarioError for what is wrong with them.
std::vector<Case> select_checked(const Suite& suite, const std::vector<std::string>& filters);

// The same of a scenario file, or of all in a folder, that need not belong to the suite; its models may.
// Throws ScenarioError for mistakes in them.
std::vector<Case> select_from(const std::filesystem::path& scenarios, const Suite& suite,
                              const std::vector<std::string>& filters);

}  // namespace fsdp_cts
