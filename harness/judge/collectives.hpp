// One rank's trace (PROTOCOL.md §5), read once for expectations and laws.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/judge/judge_context.hpp"

namespace fsdp_cts {

struct Collective {
  std::string op, phase;
  std::string dtype, reduce_op;  // reduce_op "" where the operation reduces nothing
  std::int64_t in_numel = 0, out_numel = 0;
  std::vector<int> group;
  std::optional<std::string> unit;  // the testee's word: for whom; of a computation the module's path
};

struct Trace {
  Place place;                     // with rank
  std::vector<Collective> events;  // the collectives, in order of issue
  std::vector<Collective>
      with_compute;  // the same, and where layers began to compute (op "compute", no sizes)
};

// All `trace` observations the selection takes, in program order, then by rank. Events that cannot be read
// become a finding `malformed_entry` and are left out.
std::vector<Trace> traces(const JudgeContext& context, const Selection& selection,
                          std::vector<Finding>& findings);

// Bytes one rank sends, by the formulae of a ring: (W-1)/W of the larger side for all_gather and
// reduce_scatter, twice that for all_reduce; a broadcast sends its input.
double bytes_sent(const Collective& event);

// What a rank must send at least, on average over the group, whatever the algorithm.
double least_bytes_sent(const Collective& event);

// `unresolved`: this rank has taken the kernel's count away with a connection that it closed during the case (CaseRun::closed_connection).
Finding transport_lost(int rank);

// "reduce_scatter(bfloat16, 128 -> 64, ranks 0-1)", for messages.
std::string describe(const Collective& event);

}  // namespace fsdp_cts
