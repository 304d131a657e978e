// A whole model and its optimizer's state as one safetensors file, which testees in other languages read and write, too:
// PROTOCOL.md §8.
#pragma once

#include <filesystem>
#include <optional>

#include "fsdp/optim_state.hpp"
#include "fsdp/state_dict.hpp"

namespace fsdp_cts::testee {

struct WholeState {
  fsdp::StateDict model;
  std::optional<fsdp::FullOptimizerState> optimizer;
};

void write_whole_state(const std::filesystem::path& folder, const WholeState& state);
// Throws SafetensorsError, std::system_error, and sdk::Error for a tensor that is neither the model's nor its optimizer's.
WholeState read_whole_state(const std::filesystem::path& folder);

}  // namespace fsdp_cts::testee
