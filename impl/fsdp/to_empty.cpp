#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include <set>

#include "fsdp/fully_shard.hpp"
#include "fsdp/state.hpp"

namespace fsdp {

void to_empty(torch::nn::Module& module, at::Device device) {
  const at::NoGradGuard no_grad;
  std::set<FSDPParamGroup*> done;
  const auto materialize = [&](const at::Tensor& tensor) {
    const auto [state, index] = FSDPState::of_parameter(tensor);
    if (state) {
      if (done.insert(state->group()).second) state->group()->materialize(device);
      return;
    }
    const auto empty = at::empty_like(tensor, tensor.options().device(device));
    tensor.unsafeGetTensorImpl()->shallow_copy_from(empty.getIntrusivePtr());
  };
  for (const auto& parameter : module.parameters()) {
    if (parameter.is_meta()) materialize(parameter);
  }
  for (const auto& buffer : module.buffers()) {
    if (buffer.is_meta()) materialize(buffer);
  }
}

}  // namespace fsdp
