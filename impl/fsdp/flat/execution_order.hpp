#pragma once
// Do all ranks run the units in the same order? Asked only with TORCH_DISTRIBUTED_DEBUG=DETAIL, as it costs
// two small collectives per unit in the first iteration.
#include <memory>
#include <string>
#include <vector>

#include "fsdp/comm/communicator.hpp"

namespace fsdp::flat {

class FlatState;

class ExecutionOrderCheck {
 public:
  ExecutionOrderCheck(std::vector<FlatState*> units, std::shared_ptr<Communicator> group);

  /// A training forward begins. First iteration: compares over the ranks, throws RuntimeError `Forward order
  /// differs across ranks: …`. Later: compares with this rank's own first iteration, and warns once per
  /// process.
  void record(FlatState& unit, bool first_iteration);
  void next_iteration() { position_ = 0; }
  static bool wanted();  ///< by the environment

 private:
  void compare_over_ranks(int64_t index);
  std::vector<FlatState*> units_;
  std::shared_ptr<Communicator> group_;
  std::vector<int64_t> order_;  ///< of the first iteration
  size_t position_ = 0;
  bool warned_ = false;
};

}  // namespace fsdp::flat
