// The library's Adam and AdamW, LibTorch's SGD (which rounds as Python's does), and its Adam and AdamW where
// amsgrad is asked for, behind the suite's optimizer interface.
#pragma once

#include <memory>
#include <vector>

#include "fsdp/optim_state.hpp"
#include "harness/sdk/cpp/optimizer.hpp"

namespace fsdp_cts::testee {

// One whose state the library's functions on optimizer state can take out and put in.
class LibraryOptimizer : public sdk::Optimizer {
 public:
  virtual fsdp::OptimizerState library_state() const = 0;
  virtual void load_library_state(const fsdp::OptimizerState& state) = 0;
};

std::unique_ptr<LibraryOptimizer> make_optimizer(const sdk::Json& verb,
                                                 const std::vector<sdk::OptimizerParameter>& parameters);

}  // namespace fsdp_cts::testee
