#include "base/optimizer_values.hpp"

#include <ATen/ops/empty.h>

#include <bit>
#include <cstdint>
#include <set>
#include <sstream>

#include "base/python_text.hpp"
#include "base/state_dict_validation.hpp"
#include "base/text_exchange.hpp"
#include "fsdp/errors.hpp"

namespace fsdp {
namespace {

// Names may hold anything, and scalars any bits: lengths go first, and numbers of floating point as their
// bits.
std::string written(const OptimizerValueKinds& kinds) {
  std::ostringstream text;
  for (const auto& [key, kind] : kinds) {
    text << key.first << ' ' << static_cast<int>(kind.dtype) << ' ' << kind.scalar.has_value() << ' '
         << std::bit_cast<uint64_t>(kind.scalar.value_or(0)) << ' ' << kind.scalar_dims << ' '
         << key.second.size() << ':' << key.second;
  }
  return text.str();
}

void read_into(OptimizerValueKinds& kinds, const std::string& text) {
  std::istringstream from(text);
  size_t index, name_length;
  int dtype;
  bool is_scalar;
  uint64_t bits;
  int64_t dims;
  while (from >> index >> dtype >> is_scalar >> bits >> dims >> name_length) {
    from.ignore();  // the colon
    std::string name(name_length, '\0');
    from.read(name.data(), static_cast<std::streamsize>(name_length));
    const auto scalar = is_scalar ? std::optional(std::bit_cast<double>(bits)) : std::nullopt;
    kinds.try_emplace({index, std::move(name)},
                      OptimizerValueKind{static_cast<at::ScalarType>(dtype), scalar, dims});
  }
}

}  // namespace

OptimizerValuesByTensor by_tensor(const OptimizerState& state) {
  OptimizerValuesByTensor result;
  for (const auto& [updated, values] : state) result[updated.unsafeGetTensorImpl()] = &values;
  return result;
}

OptimizerValueKind kind_of(const std::string& name, const at::Tensor& value, at::IntArrayRef updated) {
  if (value.sizes() == updated && value.dim() > 0) return {value.scalar_type(), std::nullopt};
  if (value.numel() != 1) {
    throw InvalidArgument(
        "The optimizer's value '" + name + "' has shape " + python_size(value.sizes()) +
        "; it must be a scalar, or shaped like what the optimizer updates: " + python_size(updated) + ".");
  }
  return {value.scalar_type(), value.item<double>(), value.dim()};
}

at::Tensor scalar_tensor(const OptimizerValueKind& kind, at::Device device) {
  const std::vector<int64_t> shape(static_cast<size_t>(kind.scalar_dims), 1);
  auto value = at::empty(shape, at::TensorOptions(device).dtype(kind.dtype));
  value.fill_(*kind.scalar);
  return value;
}

void agree(OptimizerValueKinds& kinds, Communicator& group, const CallSite& site) {
  if (group.size() == 1) return;
  const auto texts = all_gather_text(group, written(kinds), site);
  kinds.clear();  // the first rank's word counts, on every rank
  for (const auto& text : texts) read_into(kinds, text);
}

void validate_optimizer_state(
    const torch::nn::Module& module, const FullOptimizerState& state,
    const std::function<std::optional<std::vector<int64_t>>(const std::string&)>& shape_of) {
  StateDictValidation validation(module);
  std::set<std::string> seen;
  for (const auto& [name, values] : state) {
    if (!seen.insert(name).second)
      validation.fault("Parameter given twice in optimizer state: '" + name + "'.");
    const auto shape = shape_of(name);
    if (!shape) {
      validation.fault("Unexpected parameter in optimizer state: '" + name + "'.");
      continue;
    }
    for (const auto& [key, value] : values) {
      if (value.numel() != 1 || value.dim() == static_cast<int64_t>(shape->size()))
        validation.same_shape(name + "/" + key, value.sizes(), *shape);
    }
  }
  validation.finish();
}

}  // namespace fsdp
