#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "harness/sdk/cpp/parameter_source.hpp"

namespace fsdp_cts::sdk {
namespace {

constexpr double kMomentum = 0.1, kEpsilon = 1e-5;  // PyTorch's defaults

class BatchNorm : public Module {
 public:
  BatchNorm(const Json& d, const std::string& path, const ParameterSource& source)
      : Module(d.at("type"), d.at("class")) {
    const std::vector<std::int64_t> shape{d.at("features")};
    declare_parameter("weight", source.parameter(join_path(path, "weight"), shape));
    declare_parameter("bias", source.parameter(join_path(path, "bias"), shape));
    const at::ScalarType floating = source.dtype(at::kFloat);
    declare_buffer("running_mean", source.buffer(join_path(path, "running_mean"), shape, floating));
    declare_buffer("running_var", source.buffer(join_path(path, "running_var"), shape, floating));
    declare_buffer("num_batches_tracked",
                   source.buffer(join_path(path, "num_batches_tracked"), {}, at::kLong));
  }

 private:
  Tensors body(Tensors inputs) override {
    const at::Tensor& input = inputs.at(0);
    check_dimensions(input);
    if (is_training()) {
      c10::AutoGradMode no_grad(false);
      buffer("num_batches_tracked").add_(1);
    }
    return {at::batch_norm(input, parameter("weight"), parameter("bias"), buffer("running_mean"),
                           buffer("running_var"), is_training(), kMomentum, kEpsilon,
                           /*cudnn_enabled=*/true)};
  }

  void check_dimensions(const at::Tensor& input) const {
    const std::int64_t found = input.dim();
    if (type() == "BatchNorm1d")
      TORCH_CHECK_VALUE(found == 2 || found == 3, "expected 2D or 3D input (got ", found, "D input)");
    if (type() == "BatchNorm2d") TORCH_CHECK_VALUE(found == 4, "expected 4D input (got ", found, "D input)");
    if (type() == "BatchNorm3d") TORCH_CHECK_VALUE(found == 5, "expected 5D input (got ", found, "D input)");
    if (type() == "SyncBatchNorm") {
      TORCH_CHECK_VALUE(!input.is_cpu(), "SyncBatchNorm expected input tensor to be on GPU");
    }
  }
};

}  // namespace

std::shared_ptr<Module> build_batch_norm(const Json& d, const std::string& path,
                                         const ParameterSource& source) {
  const std::string type = d.at("type");
  const bool known =
      type == "BatchNorm1d" || type == "BatchNorm2d" || type == "BatchNorm3d" || type == "SyncBatchNorm";
  return known ? std::make_shared<BatchNorm>(d, path, source) : nullptr;
}

}  // namespace fsdp_cts::sdk
