// What a resolved module holds: its parameters and buffers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/protocol/tensor.hpp"
#include "harness/scenario/case.hpp"

namespace fsdp_cts {

// One parameter or buffer of a resolved module, in registration order, tied ones once.
struct StateShape {
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype = DType::float32;
  bool is_buffer = false;
  std::string module_type;                    // owner's type: norms have their own initial values
  std::vector<std::string> other_names = {};  // of one that is tied
};
std::vector<StateShape> module_state(const Json& resolved_module);

}  // namespace fsdp_cts
