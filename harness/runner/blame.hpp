// One sentence for a person: which rank did not do its part, where, and who waited for it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/runner/run.hpp"
#include "harness/runner/stacks.hpp"

namespace fsdp_cts {

struct RankSituation {
  const RankReport* report = nullptr;
  std::string
      last_collective;  // "reduce_scatter of 64 float32 (unit \"0\")", from the last trace; empty: none seen
  Activity activity = Activity::unknown;  // from the stacks of a hung rank
  std::string collective;                 // that it waits in, from the stacks; empty: they do not tell
  double silent_seconds = 0;              // since its last sign of progress
  std::optional<double> failed_at;        // seconds since the case began; unset: it did not fail by itself
};

// The rank to blame: what never started before what crashed, crashed before what broke the protocol, broke
// before raised, raised before hung, earlier before later. Among hung ranks the one that is not waiting for
// others. -1 when nobody failed.
int culprit(const std::vector<RankSituation>& ranks);

// Empty when every rank ended with done or unsupported.
std::string blame_sentence(const std::vector<RankSituation>& ranks);

// "step 3 (backward)", "the rendezvous", "before the first step"
std::string place(const RankReport& report);

}  // namespace fsdp_cts
