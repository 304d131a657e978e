#include "comm/local_reduction.hpp"

#include <ATen/ops/add.h>
#include <ATen/ops/maximum.h>

namespace fsdp {

void reduce_in_rank_order(const at::Tensor& out, const std::vector<at::Tensor>& addends,
                          const Reduction& reduction) {
  auto result = out;
  if (addends.size() == 1) {
    result.copy_(addends[0]);
  } else if (reduction.op == ReduceOp::max) {
    at::maximum_out(result, addends[0], addends[1]);
    for (size_t i = 2; i < addends.size(); ++i) at::maximum_out(result, result, addends[i]);
  } else {
    at::add_out(result, addends[0], addends[1]);
    for (size_t i = 2; i < addends.size(); ++i) result.add_(addends[i]);
  }
  if (reduction.op == ReduceOp::avg && addends.size() > 1) result.div_(static_cast<int64_t>(addends.size()));
}

}  // namespace fsdp
