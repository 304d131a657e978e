#include "base/python_text.hpp"

#include <algorithm>

namespace fsdp {
namespace {

template <class Range, class Text>
std::string joined(const Range& values, Text text) {
  std::string result;
  for (const auto& value : values) {
    if (!result.empty()) result.append(", ");
    result.append(text(value));
  }
  return result;
}

std::string number(int64_t value) {
  return std::to_string(value);
}

}  // namespace

std::string python_text(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return "torch.float16";
    case at::kFloat:
      return "torch.float32";
    case at::kDouble:
      return "torch.float64";
    case at::kBFloat16:
      return "torch.bfloat16";
    case at::kChar:
      return "torch.int8";
    case at::kByte:
      return "torch.uint8";
    case at::kShort:
      return "torch.int16";
    case at::kInt:
      return "torch.int32";
    case at::kLong:
      return "torch.int64";
    case at::kBool:
      return "torch.bool";
    default:
      return std::string("torch.") + c10::toString(dtype);
  }
}

std::string python_text(at::Device device) {
  const auto index = device.has_index() ? ", index=" + std::to_string(device.index()) : "";
  return "device(type='" + c10::DeviceTypeName(device.type(), /*lower_case=*/true) + "'" + index + ")";
}

std::string python_size(at::IntArrayRef sizes) {
  return c10::str("torch.Size([", joined(sizes, number), "])");
}

std::string python_tuple(at::IntArrayRef values) {
  return c10::str("(", joined(values, number), values.size() == 1 ? ",)" : ")");
}

std::string python_list(const std::vector<std::string>& texts) {
  return c10::str("[", joined(texts, [](const std::string& text) { return c10::str("'", text, "'"); }), "]");
}

std::string python_set(const std::set<at::ScalarType>& dtypes) {
  std::vector<std::string> names;
  for (const auto dtype : dtypes) names.push_back(python_text(dtype));
  std::sort(names.begin(), names.end());
  return c10::str("{", joined(names, [](const std::string& name) { return name; }), "}");
}

}  // namespace fsdp
