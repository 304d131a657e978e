#include "harness/judge/laws/laws.hpp"

namespace fsdp_cts {

const std::vector<Law>& laws() {
  static const std::vector<Law> all = {
      {"all ranks answer", all_ranks_answer},
      {"parameters are complete", parameters_are_complete},
      {"something is sharded", something_is_sharded},
      {"collectives agree", collectives_agree},
      {"the transport carries the trace", transport_carries_the_trace},
      {"work of the device is ordered", device_work_is_ordered},
      {"memory of the device is given back", device_memory_is_given_back},
      {"the host does not wait", host_does_not_wait},
      {"memory is within bounds", memory_is_within_bounds},
      {"tensors are contiguous", tensors_are_contiguous},
      {"no NaN", no_nan},
      {"attempts are expected", attempts_are_expected},
  };
  return all;
}

}  // namespace fsdp_cts
