// PyTorch asks each device which of its kernels an attention is to take; this one takes what the CPU would.
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice.h>

#include "harness/sim/memory.hpp"

namespace at::native {
namespace {

std::int64_t choose_kernel(const Tensor& query, const Tensor& key, const Tensor& value,
                           const std::optional<Tensor>& mask, double dropout, bool is_causal,
                           std::optional<double> scale, bool enable_gqa) {
  using fsdp_cts::sim::on_cpu;
  return at::_fused_sdp_choice(on_cpu(query), on_cpu(key), on_cpu(value),
                               mask ? std::optional(on_cpu(*mask)) : std::nullopt, dropout, is_causal, scale,
                               enable_gqa);
}

REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &choose_kernel)

}  // namespace
}  // namespace at::native
