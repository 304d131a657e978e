// Runs fsdp-cts as a person or a script would, on the small suite beside this file.
#pragma once

#include <filesystem>
#include <string>

namespace fsdp_cts {

struct Ran {
  int exit_code = -1;
  std::string output;  // stdout and stderr together
};

// In a folder of its own, which is the working directory of every run.
class CommandLine {
 public:
  CommandLine();
  ~CommandLine();
  // `arguments` as typed in a shell. --root names the small suite.
  Ran operator()(const std::string& arguments) const;
  // Runs the honest fault testee and records it: what it says is the golden of these tests.
  void record() const;
  std::string fault(const std::string& name,
                    const std::string& more = "") const;  // --testee '…' --golden store

  // A copy of the small suite to be changed, in folder() / `name`: for --root.
  void copy_suite(const std::string& name) const;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

}  // namespace fsdp_cts
