#include "flat/gradient_sink.hpp"

#include <cstdint>
#include <utility>

#include "fsdp/errors.hpp"

namespace fsdp::flat {

// The highest sequence number makes the engine run it as soon as it is ready, like LibTorch's own
// accumulators.
GradientSink::GradientSink(const std::vector<at::Tensor>& wholes, Receiver receiver)
    : Node(/*sequence_nr=*/UINT64_MAX), receiver_(std::move(receiver)) {
  for (const auto& whole : wholes) add_input_metadata(whole);
}

torch::autograd::variable_list GradientSink::apply(torch::autograd::variable_list&& gradients) {
  if (!receiver_) throw RuntimeError("A backward reached parameters whose FSDP module no longer exists.");
  for (const auto& gradient : gradients) {
    if (gradient.defined() && gradient.requires_grad())
      throw RuntimeError("FSDP does not support gradients of gradients");
  }
  receiver_(std::move(gradients));
  return {};
}

}  // namespace fsdp::flat
