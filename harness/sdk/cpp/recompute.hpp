// Activation checkpointing, as torch.utils.checkpoint without reentrance: LibTorch has none of its own.
#pragma once

#include <functional>

#include "harness/sdk/cpp/tensors.hpp"

namespace fsdp_cts::sdk {

// Runs `forward` and keeps none of the tensors that its backward needs. The first of them that backward asks
// for has `forward` run again, on the same inputs, which must save the same tensors in the same order. The
// graph is that of the first run. For one thread; the first call makes autograd ask this file what to do with
// tensors that it saves, for the life of the process.
Tensors recomputed(std::function<Tensors(Tensors)> forward, Tensors inputs);

}  // namespace fsdp_cts::sdk
