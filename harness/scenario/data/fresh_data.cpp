#include "harness/scenario/data/fresh_data.hpp"

namespace fsdp_cts {

Case with_fresh_data(const Case& a_case, std::int64_t seed, int draw) {
  Case fresh = a_case;
  fresh.data["seed"] = seed * 1'000'000 + draw;
  for (Json& expectation : fresh.expect) {
    if (auto equal = expectation.find("equal"); equal != expectation.end())
      (*equal)["to"] = Json::array({"reference"});
  }
  return fresh;
}

}  // namespace fsdp_cts
