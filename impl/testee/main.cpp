// fsdp_testee: the C++ FSDP library, as it is shipped, under the suite. The runner starts one process per
// rank.
#include "impl/testee/command.hpp"

int main(int argc, char** argv) {
  fsdp_cts::testee::run(argc, argv);
}
