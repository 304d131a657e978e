// How many collectives each micro-batch must issue, where a simple rule says so (FS-GATHER-1, FS-RED-1,
// FP-GATHER-1, FP-RED-1): a walk over the sketch with one bit for every unit, whether it is gathered.
#pragma once

#include <vector>

#include "harness/generate/sketch.hpp"

namespace fsdp_cts::generate {

struct CollectiveCounts {
  // Nothing where no simple rule says it.
  std::optional<int> gathers_in_forward, gathers_in_backward, reduce_scatters, all_reduces;
  std::vector<std::optional<int>> gathers_aside;  // in the forward of each aside before it that has one
};

// One per micro-batch, in order.
std::vector<CollectiveCounts> count_collectives(const Sketch& sketch);

// The paths of units that are one Linear each and run one after another, where each is sharded, freed after
// every forward, gathered again in every backward and trained, and all have the same settings; else nothing.
// Of these clauses say what is issued before what (FS-RED-5, FP-GATHER-3 to 5).
std::vector<std::string> chain_of_layers(const Sketch& sketch);

}  // namespace fsdp_cts::generate
