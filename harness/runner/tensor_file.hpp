// The tensor files that testees hand over.
#pragma once

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "harness/protocol/tensor.hpp"

namespace fsdp_cts {

// The runner has no descriptor or memory left to open the file, which is no fault of the rank.
class NoDescriptor : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The tensor file that an observation names, taken out of the scratch folder. A rank may hand over any bytes;
// it may not make the runner wait, nor read or remove another place. So the path is walked part by part, from
// the folder down and never through a link, and what was opened is what is looked at, read and removed.
// Throws MessageError for what the rank did wrong, with the code that PROTOCOL.md lists, and NoDescriptor.
TensorMap take_tensor_file(const std::filesystem::path& folder, const std::string& name,
                           std::uintmax_t max_bytes);

}  // namespace fsdp_cts
