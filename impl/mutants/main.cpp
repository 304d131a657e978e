// fsdp_testee_mutants: the C++ FSDP library with one fault, or another way to be right, under the suite. All
// of them are in this one program, FSDP_CTS_MUTANT says which; see README.md.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "base/selected_mutant.hpp"
#include "impl/testee/command.hpp"

namespace {

std::string chosen_mutant() {
  const char* id = std::getenv("FSDP_CTS_MUTANT");
  if (id != nullptr && fsdp::mutants::select(id)) return std::string("mutant:") + id;
  std::string all;
  for (const std::string& each : fsdp::mutants::ids()) all += "\n  " + each;
  throw std::invalid_argument((id == nullptr ? "FSDP_CTS_MUTANT names no mutant"
                                             : "no mutant is called \"" + std::string(id) + "\"") +
                              "; there are" + all);
}

}  // namespace

int main(int argc, char** argv) {
  fsdp_cts::testee::run(argc, argv, chosen_mutant, fsdp::mutants::begin_case);
}
