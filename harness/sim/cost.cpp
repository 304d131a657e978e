#include "harness/sim/cost.hpp"

#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace fsdp_cts::sim {
namespace {

using Values = c10::ArrayRef<c10::IValue>;

double bytes_of(const c10::IValue& value) {
  if (value.isTensor()) return sim::bytes_of(value.toTensor());
  double sum = 0;
  if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) sum += sim::bytes_of(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList())
      if (tensor) sum += sim::bytes_of(*tensor);
  }
  return sum;
}

// Of these a written argument is not read.
bool overwrites(const std::string& name) {
  static const std::unordered_set<std::string> names = {
      "aten::fill_",          "aten::zero_",    "aten::copy_",  "aten::_foreach_zero_",
      "aten::_foreach_copy_", "aten::uniform_", "aten::normal_"};
  return names.contains(name);
}

double moved_bytes(const c10::FunctionSchema& schema, Values arguments, Values results) {
  double sum = 0;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    const bool written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    const bool read_too = written && !argument.kwarg_only() && !overwrites(schema.operator_name().name);
    sum += (read_too ? 2 : 1) * bytes_of(arguments[i]);
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (schema.returns()[i].alias_info() == nullptr) sum += bytes_of(results[i]);
  }
  return sum;
}

double elements(const at::Tensor& tensor) {
  return static_cast<double>(tensor.numel());
}

// Of rows times columns: every row of `left` with `columns` columns of as many elements.
double product(const at::Tensor& left, double columns) {
  return 2 * elements(left) * columns;
}

double columns_of(const at::Tensor& right) {
  return right.dim() < 2 ? 1 : static_cast<double>(right.size(-1));
}

double convolution(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& output,
                   bool transposed) {
  // Every element of the larger side meets all of the kernel that belongs to it.
  const at::Tensor& spread = transposed ? input : output;
  return weight.size(0) == 0 ? 0
                             : 2 * elements(spread) * elements(weight) / static_cast<double>(weight.size(0));
}

// query [..., L, E], key [..., S, E], value [..., S, V]: scores, then what they weigh.
double attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  const auto keys = static_cast<double>(key.size(-2));
  return product(query, keys) + 2 * elements(query) / static_cast<double>(query.size(-1)) * keys *
                                    static_cast<double>(value.size(-1));
}

const at::Tensor& tensor(const c10::IValue& value) {
  return value.toTensor();
}

struct Product {
  double operations = 0;
  std::size_t operand = 0;  // the argument whose elements say how fast
};

Product product_of(const std::string& name, Values a, Values results) {
  if (name == "aten::mm" || name == "aten::bmm" || name == "aten::mv" || name == "aten::dot" ||
      name == "aten::vdot")
    return {product(tensor(a[0]), columns_of(tensor(a[1]))), 0};
  if (name == "aten::addmm" || name == "aten::baddbmm" || name == "aten::addmv" || name == "aten::addbmm" ||
      name == "aten::_addmm_activation" || name == "aten::addmm_" || name == "aten::baddbmm_" ||
      name == "aten::addmv_" || name == "aten::addbmm_")
    return {product(tensor(a[1]), columns_of(tensor(a[2]))), 1};
  if (name == "aten::convolution")
    return {convolution(tensor(a[0]), tensor(a[1]), tensor(results[0]), a[6].toBool()), 0};
  if (name == "aten::convolution_backward") {
    // (gradient of the output, input, weight, …, transposed at 7, …, wanted at 10): one convolution for each gradient.
    const double one = convolution(tensor(a[1]), tensor(a[2]), tensor(a[0]), a[7].toBool());
    const auto wanted = a[10].toBoolList();
    return {one * ((wanted[0] ? 1 : 0) + (wanted[1] ? 1 : 0)), 1};
  }
  if (name.starts_with("aten::_scaled_dot_product_")) {
    // Backward computes the scores again, and four more products of the same size.
    if (name.find("_backward") != std::string::npos)
      return {2.5 * attention(tensor(a[1]), tensor(a[2]), tensor(a[3])), 1};
    return {attention(tensor(a[0]), tensor(a[1]), tensor(a[2])), 0};
  }
  return {};
}

}  // namespace

bool makes_a_view(const c10::FunctionSchema& schema) {
  for (const auto& result : schema.returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) return true;
  }
  return false;
}

Cost cost_of(const c10::FunctionSchema& schema, Values arguments, Values results) {
  Cost cost;
  cost.bytes = moved_bytes(schema, arguments, results);
  const Product product = product_of(schema.operator_name().name, arguments, results);
  cost.operations = product.operations;
  if (product.operations > 0)
    cost.bits = 8 * static_cast<int>(arguments[product.operand].toTensor().element_size());
  return cost;
}

}  // namespace fsdp_cts::sim
