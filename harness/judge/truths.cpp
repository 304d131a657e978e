#include "harness/judge/truths.hpp"

#include <algorithm>

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

std::set<std::string> compared_with(const Case& a_case, const std::string& truth) {
  std::set<std::string> whats;
  for (const Json& expectation : a_case.expect) {
    auto equal = expectation.find("equal");
    if (equal == expectation.end()) continue;
    const auto truths = strings_of(equal->at("to"));
    if (std::find(truths.begin(), truths.end(), truth) == truths.end()) continue;
    for (std::string& what : strings_of(equal->at("what"))) whats.insert(std::move(what));
  }
  return whats;
}

}  // namespace fsdp_cts
