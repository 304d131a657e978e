// What the judge needs to know about a place in a program: which iteration, which label, which phase of a
// training step.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/protocol/tensor.hpp"
#include "harness/scenario/case.hpp"

namespace fsdp_cts {

// A `cast` verb.
struct Cast {
  std::string dtype;
  std::string match;  // of the parameters alone whose names it is found in; "": of everything floating
};

// Of a parameter that a model describes in `dtype`, after these casts of the model.
DType dtype_after(const std::vector<Cast>& casts, const std::string& parameter, DType dtype);

struct StepFacts {
  std::string verb;
  std::optional<int> iteration;
  std::string label;
  std::string
      phase;  // of the last verb that did something: "build", "forward", "backward", "optimizer", "summon", …
  std::string model;              // the step's model, "model" where it names none
  std::vector<std::string> what;  // of `observe`
  std::vector<int> ranks;         // empty: all
  std::string attempt;            // the innermost open attempt, "" outside
  // False while parameters may be unsharded legally: between a forward or unshard and the backward or reshard
  // that follows, and inside a summon scope. Only settled observations prove that something is sharded.
  bool settled = true;
  std::vector<Cast> casts;  // of the step's model since it was built
  // Of which module each state dict at hand was taken, by `state_dict:NAME`; "" is the whole model.
  std::map<std::string, std::string> parts;
};

// Where attempts failed: step of the attempt's end → the step that raised, as testees say. What stands between
// was not acted out; what stands before the attempt was, whatever they say.
using FailedAttempts = std::map<int, int>;

class ProgramMap {
 public:
  explicit ProgramMap(const Json& program, const FailedAttempts& failed = {});

  // The casts of a model before it was sharded, for the last time where that was more than once.
  std::vector<Cast> casts_before_sharding(const std::string& model) const;
  const StepFacts& at(int step) const;  // throws std::out_of_range; check contains() for steps a testee named
  bool contains(int step) const { return step >= 0 && step < size(); }
  int size() const { return static_cast<int>(steps_.size()); }
  // At which step the attempt that ends at `end` failed, of what a testee claims: none before the attempt.
  int failed_step(int end, int claimed) const;
  // A rank whose process the program has ended takes no part any more.
  bool takes_part(int step, int rank) const;
  // Whether its process is gone before the end of the case.
  bool ends(int rank) const { return ended_.contains(rank); }

 private:
  std::vector<StepFacts> steps_;
  std::map<int, int> begin_of_attempt_;  // by the step of its end
  std::map<int, int> ended_;             // by rank: at which step its process ends
};

// A string or a list of strings, as LANGUAGE.md allows for `what`.
std::vector<std::string> strings_of(const Json& value);

}  // namespace fsdp_cts
