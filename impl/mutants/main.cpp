// fsdp_testee_mutants: the C++ FSDP library with one fault, or another way to be right, under the suite. All
// of them are in this one program, FSDP_CTS_MUTANT says which; see README.md.
#include <cstdlib>
#include <iostream>
#include <string>

#include "base/selected_mutant.hpp"
#include "harness/protocol/fork_server.hpp"
#include "impl/testee/command.hpp"

namespace {

int refuse(const std::string& what) {
  std::cerr << "fsdp_testee_mutants: " << what
            << "\nusage: FSDP_CTS_MUTANT=ID fsdp_testee_mutants [arguments of fsdp_testee]\nmutants:\n";
  for (const std::string& id : fsdp::mutants::ids()) std::cerr << "  " << id << '\n';
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  fsdp_cts::serve_forks();  // a rank is told its mutant, the server is that of all
  const char* id = std::getenv("FSDP_CTS_MUTANT");
  if (id == nullptr) return refuse("FSDP_CTS_MUTANT names no mutant");
  if (!fsdp::mutants::select(id)) return refuse("no mutant is called \"" + std::string(id) + "\"");
  fsdp_cts::testee::run(argc, argv, std::string("mutant:") + id, fsdp::mutants::begin_case);
}
