// fsdp_reference: the oracle. It is asked what a case must give, never how.
#include "reference/memory_count.hpp"
#include "reference/oracle.hpp"

int main() {
  fsdp_cts::reference::count_memory();
  const auto serve = [] {
    fsdp_cts::reference::Oracle oracle;
    return fsdp_cts::sdk::serve(oracle);
  };
  fsdp_cts::sdk::leave(serve());
}
