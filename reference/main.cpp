// fsdp_reference [--count-memory]: the oracle. It is asked what a case must give, never how.
#include <string_view>

#include "harness/protocol/fork_server.hpp"
#include "reference/memory_count.hpp"
#include "reference/oracle.hpp"

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "--count-memory") fsdp_cts::reference::count_memory();
  fsdp_cts::serve_forks();
  const auto serve = [] {
    fsdp_cts::reference::Oracle oracle;
    return fsdp_cts::sdk::serve(oracle);
  };
  fsdp_cts::sdk::leave(serve());
}
