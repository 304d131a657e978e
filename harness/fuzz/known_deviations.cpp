// A file of known deviations.
#include "harness/fuzz/targets.hpp"
#include "harness/judge/known_deviation_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fsdp_cts;
  try {
    parse_deviations(std::string(fuzz::text_of(data, size)), "input");
  } catch (const DeviationFileError&) {
  }
  return 0;
}
