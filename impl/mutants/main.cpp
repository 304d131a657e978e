// fsdp_testee_mutants: the C++ FSDP library with one fault, or another way to be right, under the suite. All
// of them are in this one program; see README.md.
#include <iostream>
#include <string>
#include <vector>

#include "base/selected_mutant.hpp"
#include "impl/testee/command.hpp"

namespace {

int refuse(const std::string& what) {
  std::cerr << "fsdp_testee_mutants: " << what
            << "\nusage: fsdp_testee_mutants --mutant ID [arguments of fsdp_testee]\nmutants:\n";
  for (const std::string& id : fsdp::mutants::ids()) std::cerr << "  " << id << '\n';
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || std::string(argv[1]) != "--mutant") return refuse("the first argument must be --mutant ID");
  const std::string id = argv[2];
  if (!fsdp::mutants::select(id)) return refuse("no mutant is called \"" + id + "\"");
  std::vector<char*> rest = {argv[0]};
  rest.insert(rest.end(), argv + 3, argv + argc);
  fsdp_cts::testee::run(static_cast<int>(rest.size()), rest.data(), "mutant:" + id,
                        fsdp::mutants::begin_case);
}
