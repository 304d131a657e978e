// Optimizers over a model of FSDP1. With original parameters they update those; without, flat parameters,
// whose state is cut up for the suite by original parameter.
#pragma once

#include <torch/nn/module.h>

#include <memory>

#include "harness/sdk/cpp/optimizer.hpp"

namespace fsdp_cts::testee {

// Made before or after sharding. A flat parameter goes by the name of the first parameter in it.
std::unique_ptr<sdk::Optimizer> make_flat_optimizer(const sdk::Json& verb,
                                                    const std::shared_ptr<torch::nn::Module>& model);

}  // namespace fsdp_cts::testee
