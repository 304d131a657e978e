// Evidence as it is kept in the golden store: tensors under keys that say where they were observed, and a
// small JSON part.
#pragma once

#include "harness/judge/evidence.hpp"

namespace fsdp_cts {

// Keys: "<step>/<what>/<model>/<name>", with "@<rank>" behind a value of one rank only. What is equal on all
// ranks is kept once. Kept are registers, tensor lists and, of the facts recorded, seen_parameters, units and
// attempt, those that the case compares with a recording: what nobody asks for would only keep cases with
// equal answers from sharing one. Not kept are traces, warnings and counters, which laws judge.
struct Recording {
  TensorMap tensors;
  Json directory;  // {none: [keys], facts: [{step, what, model, name?, rank?, value}]}
};

Recording to_recording(const Evidence& evidence, const Case& a_case);
// Throws std::invalid_argument for keys that are not as above.
Evidence from_recording(Recording recording);

}  // namespace fsdp_cts
