// Reading the entries of observations (PROTOCOL.md §5): one walk for testees and the oracle.
#pragma once

#include <functional>

#include "harness/judge/evidence.hpp"
#include "harness/judge/finding.hpp"
#include "harness/judge/program_map.hpp"
#include "harness/runner/run.hpp"

namespace fsdp_cts {

// One item of a tensor list as it came, with the bytes of its pieces.
struct ItemRead {
  RankShard described;
  std::vector<const HostTensor*> tensors;  // one per piece; may be longer than the piece by its padding
};

struct EntrySink {
  std::function<void(const Place&, const HostTensor&)> on_register;
  std::function<void(const ItemRead&)> on_item;
  std::function<void(const Place&, const Json&)> on_fact;
  std::function<void(Finding)> on_finding;
};

// Calls the sink for everything in one observation. `kind` is the verdict of findings. With `entry_ranks` the
// entry's own "rank" counts (null or absent: all ranks), else the sender's.
void read_entries(const Observation& observation, const ProgramMap& program, bool entry_ranks,
                  VerdictKind kind, const EntrySink& sink);

// A finding at a place, with the divergence keys every finding has.
Finding finding_at(VerdictKind kind, std::string code, const Place& place, const ProgramMap& program,
                   std::string summary);

// A failure of that kind by a clause that no expectation carries, which comes first.
Finding broken_law(const char* clause, std::string code, const Place& place, const ProgramMap& program,
                   std::string summary);

}  // namespace fsdp_cts
