// A scenario file, from its text to its cases. Mistakes are noted, never thrown.
#include "harness/fuzz/targets.hpp"
#include "harness/scenario/catalogue/load.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fsdp_cts;
  Mistakes mistakes;
  for (const Case& each : load_scenario(std::string(fuzz::text_of(data, size)), "input", {}, mistakes)) {
    if (mistakes.noted() == 0) case_message(each);
  }
  return 0;
}
