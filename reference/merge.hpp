// The answers of all simulated ranks as one: what is the same on every rank is said once. PROTOCOL.md §6.
#pragma once

#include <optional>
#include <vector>

#include "harness/sdk/cpp/interpreter.hpp"

namespace fsdp_cts::reference {

// Nothing when no rank answered. Entries that all ranks share have rank null. In a list of items only those
// that differ are given by rank, the others once. Of what is not a truth or rule (traces, identities,
// counters, …) nothing is left.
std::optional<sdk::Observation> merge(const std::vector<std::optional<sdk::Observation>>& by_rank);

}  // namespace fsdp_cts::reference
