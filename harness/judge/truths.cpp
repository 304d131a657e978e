#include "harness/judge/truths.hpp"

#include "harness/judge/program_map.hpp"

namespace fsdp_cts {

TruthsNeeded truths_needed(const Case& a_case) {
  TruthsNeeded needed;
  for (const Json& expectation : a_case.expect) {
    auto equal = expectation.find("equal");
    if (equal != expectation.end()) {
      for (const std::string& truth : strings_of(equal->at("to")))
        (truth == "golden" ? needed.golden : needed.reference) = true;
    }
    // The wrap tree an automatic policy makes, by which flat layouts are judged, is the reference's.
    auto layout = expectation.find("layout");
    if (layout != expectation.end() && layout->value("kind", "") == "flat") needed.reference = true;
  }
  return needed;
}

}  // namespace fsdp_cts
