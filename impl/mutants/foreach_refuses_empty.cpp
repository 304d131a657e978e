#include <ATen/ATen.h>

#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

void refuses_empty(const std::vector<at::Tensor>& tensors, double factor) {
  for (at::Tensor tensor : tensors) {
    tensor.view({tensor.numel(), 1}).select(0, 0).mul_(1);  // looks at the first element
    tensor.mul_(factor);
  }
}

}  // namespace

Mutant foreach_refuses_empty() {
  Mutant mutant{"foreach_refuses_empty",
                Group::flat_parameter,
                "A multi-tensor operation takes it for granted that every tensor has an element.",
                "fail",
                "exception",
                "a list with empty tensors is an error"};
  mutant.foreach_mul = refuses_empty;
  mutant.cases = {"UOP/TestMultiTensorApply/*"};
  return mutant;
}

}  // namespace fsdp_cts::mutants
