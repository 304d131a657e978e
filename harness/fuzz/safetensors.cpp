// A tensor file from a testee. What is accepted means the same when it is written and read again.
#include "harness/protocol/safetensors.hpp"

#include "harness/fuzz/targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fsdp_cts;
  try {
    const TensorMap tensors = parse_safetensors(fuzz::text_of(data, size), "input");
    const TensorMap again = parse_safetensors(serialize_safetensors(tensors), "again");
    fuzz::check(again.size() == tensors.size());
    for (const auto& [name, tensor] : tensors) {
      const HostTensor& other = again.at(name);
      fuzz::check(other.dtype == tensor.dtype && other.shape == tensor.shape && other.bytes == tensor.bytes);
    }
  } catch (const SafetensorsError&) {
  }
  return 0;
}
