#include "harness/sdk/cpp/tensors.hpp"

#include <ATen/ATen.h>

#include <cstring>
#include <stdexcept>

namespace fsdp_cts::sdk {
namespace {

at::ScalarType to_aten(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return at::kDouble;
    case DType::float32:
      return at::kFloat;
    case DType::float16:
      return at::kHalf;
    case DType::bfloat16:
      return at::kBFloat16;
    case DType::int64:
      return at::kLong;
    case DType::int32:
      return at::kInt;
    case DType::int16:
      return at::kShort;
    case DType::int8:
      return at::kChar;
    case DType::uint8:
      return at::kByte;
    case DType::boolean:
      return at::kBool;
  }
  throw std::invalid_argument("a dtype outside the protocol");
}

DType from_aten(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return DType::float64;
    case at::kFloat:
      return DType::float32;
    case at::kHalf:
      return DType::float16;
    case at::kBFloat16:
      return DType::bfloat16;
    case at::kLong:
      return DType::int64;
    case at::kInt:
      return DType::int32;
    case at::kShort:
      return DType::int16;
    case at::kChar:
      return DType::int8;
    case at::kByte:
      return DType::uint8;
    case at::kBool:
      return DType::boolean;
    default:
      throw std::invalid_argument(std::string("the protocol has no dtype ") + c10::toString(dtype));
  }
}

}  // namespace

std::string dtype_name(at::ScalarType dtype) {
  return std::string(fsdp_cts::dtype_name(from_aten(dtype)));
}

at::ScalarType dtype_from_name(std::string_view name) {
  return to_aten(fsdp_cts::dtype_from_name(name));
}

const at::Tensor& only_tensor(const std::string& name, const Tensors& tensors) {
  if (tensors.size() != 1)
    throw std::invalid_argument("\"" + name + "\" holds " + std::to_string(tensors.size()) +
                                " tensors; give each output of the module a name, forward: {output: [a, b]}");
  return tensors.front();
}

HostTensor to_host(const at::Tensor& tensor) {
  const at::Tensor source = tensor.detach().to(at::kCPU).contiguous();
  HostTensor host;
  host.dtype = from_aten(source.scalar_type());
  host.shape = source.sizes().vec();
  host.bytes.resize(source.nbytes());
  if (!host.bytes.empty()) std::memcpy(host.bytes.data(), source.const_data_ptr(), host.bytes.size());
  return host;
}

at::Tensor from_host(const HostTensor& host) {
  at::Tensor tensor = at::empty(host.shape, at::TensorOptions().dtype(to_aten(host.dtype)));
  if (tensor.nbytes() != host.bytes.size()) {
    throw std::invalid_argument("a host tensor has " + std::to_string(host.bytes.size()) +
                                " bytes where its shape needs " + std::to_string(tensor.nbytes()));
  }
  if (!host.bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), host.bytes.data(), host.bytes.size());
  return tensor;
}

}  // namespace fsdp_cts::sdk
