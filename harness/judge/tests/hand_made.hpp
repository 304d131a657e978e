// A small case with hand-made answers that pass: Linear(2 -> 4) sharded over two ranks, one training step.
// Tests spoil one thing at a time and look at what the judge says.
#pragma once

#include <string>

#include "harness/judge/judge.hpp"

namespace fsdp_cts {

struct HandMade {
  // Steps of the program.
  static constexpr int after_backward = 6, after_step = 8, attempt_end = 11, of_other = 12;

  Case a_case;
  CaseRun run;
  OwnedTruth reference, golden;
  std::optional<Noise> noise;

  HandMade();

  // Judges with `expect`, a JSON list, as the only expectations.
  Verdict judged(const char* expect);

  Json& entry(int step, int rank, const std::string& what);         // of the testee
  HostTensor& tensor(int step, int rank, const std::string& name);  // as named in the observation's file
  Observation& observation(int step, int rank);
  void drop_entry(int step, int rank, const std::string& what);
  // Same value in both truths.
  void set_truths(const Place& place, const HostTensor& tensor);
};

// Judges with `expect` and asserts what comes of it.
void expect_pass(HandMade& made, const char* expect);
Verdict expect_code(HandMade& made, const char* expect, const std::string& code,
                    VerdictKind kind = VerdictKind::fail);

// The same in float64, as the reference's wide run would have it.
Evidence widened(const Evidence& native);

// Changes one element of a tensor, in its own dtype.
void set_element(HostTensor& tensor, std::int64_t index, double value);

Json collective(const std::string& op, const std::string& phase, const std::string& dtype, Json reduce_op,
                int in_numel, int out_numel);

}  // namespace fsdp_cts
