#include "impl/testee/checkpoints.hpp"

#include "harness/protocol/safetensors.hpp"
#include "harness/sdk/cpp/errors.hpp"
#include "harness/sdk/cpp/tensors.hpp"

namespace fsdp_cts::testee {
namespace {

constexpr std::string_view of_model = "model/", of_optimizer = "optimizer/";

std::filesystem::path file_in(const std::filesystem::path& folder) {
  return folder / "state.safetensors";
}

}  // namespace

void write_whole_state(const std::filesystem::path& folder, const WholeState& state) {
  TensorMap tensors;
  for (const auto& [name, value] : state.model)
    tensors.emplace(std::string(of_model) + name, sdk::to_host(value));
  for (const auto& [name, values] : state.optimizer.value_or(fsdp::FullOptimizerState{})) {
    for (const auto& [key, value] : values)
      tensors.emplace(std::string(of_optimizer) + name + "/" + key, sdk::to_host(value));
  }
  write_safetensors(file_in(folder), tensors);
}

WholeState read_whole_state(const std::filesystem::path& folder) {
  WholeState state;
  std::map<std::string, std::map<std::string, at::Tensor>> optimizer;
  for (const auto& [key, tensor] : read_safetensors(file_in(folder))) {
    if (key.starts_with(of_model)) {
      state.model.emplace_back(key.substr(of_model.size()), sdk::from_host(tensor));
      continue;
    }
    const auto slash = key.rfind('/');
    if (!key.starts_with(of_optimizer) || slash < of_optimizer.size())
      throw sdk::Error("RuntimeError",
                       "a checkpoint holds " + key + ", which is neither model's nor optimizer's");
    optimizer[key.substr(of_optimizer.size(), slash - of_optimizer.size())][key.substr(slash + 1)] =
        sdk::from_host(tensor);
  }
  if (!optimizer.empty()) state.optimizer.emplace(optimizer.begin(), optimizer.end());
  return state;
}

}  // namespace fsdp_cts::testee
