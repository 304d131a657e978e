#pragma once
// Where the gradients of a unit's parameters end. While parameters are shown whole, the i-th one's gradient
// edge leads to input i of this node, which has no further edges: it runs once per backward, when every
// gradient that this backward gives the unit has arrived, and hands all of them over together. They go
// straight into one buffer.
#include <torch/csrc/autograd/function.h>

#include <functional>
#include <vector>

namespace fsdp::flat {

class GradientSink : public torch::autograd::Node {
 public:
  using Receiver = std::function<void(torch::autograd::variable_list gradients)>;

  /// `wholes`: one tensor per parameter with the shape, dtype and device that gradients have.
  GradientSink(const std::vector<at::Tensor>& wholes, Receiver receiver);
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  std::string name() const override { return "FlatParameterGradient"; }
  /// For the owner's end: a graph may live longer.
  void disconnect() { receiver_ = nullptr; }

 private:
  Receiver receiver_;
};

}  // namespace fsdp::flat
