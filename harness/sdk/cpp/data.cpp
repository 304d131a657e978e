#include "harness/sdk/cpp/data.hpp"

#include <ATen/ATen.h>

#include <stdexcept>

#include "harness/protocol/safetensors.hpp"
#include "harness/sdk/cpp/tensors.hpp"

namespace fsdp_cts::sdk {

Data::Data(const std::filesystem::path& file, int rank)
    : Data(std::make_shared<TensorMap>(read_safetensors(file)), rank) {}

Data::Data(std::shared_ptr<const TensorMap> tensors, int rank, bool widen)
    : tensors_(std::move(tensors)), rank_(rank), widen_(widen) {}

std::optional<at::Tensor> Data::find(const std::string& name) const {
  auto found = tensors_->find(name + "@" + std::to_string(rank_));
  if (found == tensors_->end()) found = tensors_->find(name);
  if (found == tensors_->end()) return std::nullopt;
  at::Tensor tensor = from_host(found->second);
  return widen_ && tensor.is_floating_point() ? tensor.to(at::kDouble) : tensor;
}

at::Tensor Data::get(const std::string& name) const {
  if (std::optional<at::Tensor> tensor = find(name)) return *std::move(tensor);
  throw std::invalid_argument("the data file has neither \"" + name + "\" nor \"" + name + "@" +
                              std::to_string(rank_) + "\"");
}

at::Tensor Data::input(const std::string& name) const {
  return get("inputs/" + name);
}

}  // namespace fsdp_cts::sdk
