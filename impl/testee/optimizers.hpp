// The library's Adam and AdamW, and LibTorch's SGD (which rounds as Python's does), behind the suite's
// optimizer interface.
#pragma once

#include <memory>
#include <vector>

#include "harness/sdk/cpp/optimizer.hpp"

namespace fsdp_cts::testee {

std::unique_ptr<sdk::Optimizer> make_optimizer(const sdk::Json& verb,
                                               const std::vector<sdk::OptimizerParameter>& parameters);

}  // namespace fsdp_cts::testee
