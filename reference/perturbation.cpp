#include "reference/perturbation.hpp"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fsdp_cts::reference {
namespace {

struct Pattern {
  std::uint64_t seed = 0;
  std::uint64_t state = 0;  // of the next result
};
thread_local Pattern pattern;

// splitmix64's finalizer.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Operators that are no views and yet compute nothing: they place, choose or clear.
const std::set<std::string> exact_operators = {"abs",
                                               "abs_",
                                               "amax",
                                               "amin",
                                               "arange",
                                               "bernoulli",
                                               "bernoulli_",
                                               "cat",
                                               "clamp",
                                               "clamp_",
                                               "clamp_max",
                                               "clamp_min",
                                               "clone",
                                               "constant_pad_nd",
                                               "embedding",
                                               "empty",
                                               "empty_like",
                                               "empty_strided",
                                               "eye",
                                               "fill",
                                               "fill_",
                                               "flip",
                                               "full",
                                               "full_like",
                                               "gather",
                                               "index",
                                               "index_fill",
                                               "index_fill_",
                                               "index_put",
                                               "index_put_",
                                               "_index_put_impl_",
                                               "index_select",
                                               "masked_fill",
                                               "masked_fill_",
                                               "masked_scatter",
                                               "masked_select",
                                               "max",
                                               "max_pool2d_with_indices",
                                               "maximum",
                                               "min",
                                               "minimum",
                                               "neg",
                                               "neg_",
                                               "new_empty",
                                               "new_empty_strided",
                                               "new_full",
                                               "new_ones",
                                               "new_zeros",
                                               "ones",
                                               "ones_like",
                                               "relu",
                                               "relu_",
                                               "repeat",
                                               "resize_",
                                               "roll",
                                               "scalar_tensor",
                                               "scatter",
                                               "scatter_",
                                               "select_backward",
                                               "select_scatter",
                                               "set_",
                                               "sgn",
                                               "sign",
                                               "slice_backward",
                                               "slice_scatter",
                                               "sort",
                                               "stack",
                                               "threshold",
                                               "threshold_",
                                               "threshold_backward",
                                               "topk",
                                               "tril",
                                               "tril_",
                                               "triu",
                                               "triu_",
                                               "_unsafe_view",
                                               "where",
                                               "zero_",
                                               "zeros",
                                               "zeros_like"};

// Casts, and copies that may be one.
const std::set<std::string> copies = {"copy_", "_to_copy", "copy", "_copy_from", "_copy_from_and_resize"};

enum class Rounds { never, when_narrowed, always };

Rounds rounds(const c10::OperatorName& name) {
  const std::string plain = name.name.substr(name.name.find("::") + 2);
  if (copies.count(plain)) return Rounds::when_narrowed;
  if (exact_operators.count(plain)) return Rounds::never;
  const auto op = c10::Dispatcher::singleton().findSchema(name);
  if (!op) return Rounds::never;
  // Its parts are operators of their own, and it may hand back its input.
  if (op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) return Rounds::never;
  for (const c10::Argument& result : op->schema().returns()) {
    if (result.alias_info() && !result.alias_info()->isWrite()) return Rounds::never;  // a view
  }
  return Rounds::always;
}

int mantissa_bits(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return 52;
    case at::kFloat:
      return 23;
    case at::kHalf:
      return 10;
    case at::kBFloat16:
      return 7;
    default:
      return 0;
  }
}

// What is known when an operator starts; its inputs can be looked at no later.
struct Call : at::ObserverContext {
  int widest_input = 0;  // mantissa bits; of casts and copies
  bool is_copy = false;
  Call* outer = nullptr;  // the operator that called this one
  // Results of operators that this one called: a result is moved once. Weak, so that no address comes back as
  // another's.
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> moved;
};
thread_local Call* innermost = nullptr;

// The neighbours of a finite number other than zero are its bits plus and minus one.
template <class Bits>
void move(Bits& bits, Bits exponent_mask, bool up) {
  const Bits sign = static_cast<Bits>(Bits{1} << (sizeof(Bits) * 8 - 1));
  const Bits magnitude = static_cast<Bits>(bits & static_cast<Bits>(~sign));
  if (magnitude == 0 || (bits & exponent_mask) == exponent_mask) return;
  // Neither out of range nor to zero.
  const bool grows =
      up ? static_cast<Bits>((magnitude + 1) & exponent_mask) != exponent_mask : magnitude == 1;
  bits = static_cast<Bits>(grows ? bits + 1 : bits - 1);
}

template <class Bits>
void move_all(const at::Tensor& result, Bits exponent_mask, std::uint64_t state) {
  constexpr std::uint64_t one_in = sizeof(Bits) == 2 ? 16 : 1;
  auto* data = static_cast<Bits*>(result.mutable_data_ptr());
  const std::int64_t numel = result.numel(), dims = result.dim();
  std::vector<std::int64_t> at(static_cast<std::size_t>(dims), 0);
  std::int64_t offset = 0;
  for (std::int64_t i = 0; i < numel; ++i) {
    const std::uint64_t drawn = mixed(state ^ static_cast<std::uint64_t>(i));
    if ((drawn >> 8) % one_in == 0) move(data[offset], exponent_mask, (drawn & 1) != 0);
    for (std::int64_t d = dims; d-- > 0;) {
      auto& place = at[static_cast<std::size_t>(d)];
      offset += result.stride(d);
      if (++place < result.size(d)) break;
      offset -= result.stride(d) * result.size(d);
      place = 0;
    }
  }
}

// Straight in memory: an operator for it would count as a change of what autograd has saved.
void perturb(const at::Tensor& result) {
  if (!result.device().is_cpu() || result.layout() != at::kStrided || result.numel() == 0) return;
  const std::uint64_t state = pattern.state = mixed(pattern.state);
  switch (result.scalar_type()) {
    case at::kDouble:
      return move_all<std::uint64_t>(result, 0x7ff0000000000000u, state);
    case at::kFloat:
      return move_all<std::uint32_t>(result, 0x7f800000u, state);
    case at::kHalf:
      return move_all<std::uint16_t>(result, 0x7c00u, state);
    case at::kBFloat16:
      return move_all<std::uint16_t>(result, 0x7f80u, state);
    default:
      return;
  }
}

// Nothing for an operator that rounds nothing.
std::unique_ptr<at::ObserverContext> before(const at::RecordFunction& function) {
  static thread_local std::unordered_map<c10::OperatorName, Rounds> known;
  const auto name = function.operator_name();
  if (!name) return nullptr;
  auto found = known.find(*name);
  if (found == known.end()) found = known.emplace(*name, rounds(*name)).first;
  if (found->second == Rounds::never) return nullptr;
  auto call = std::make_unique<Call>();
  call->outer = std::exchange(innermost, call.get());
  if (found->second == Rounds::when_narrowed) {
    call->is_copy = true;
    for (const c10::IValue& input : function.inputs()) {
      if (input.isTensor() && input.toTensor().defined())
        call->widest_input = std::max(call->widest_input, mantissa_bits(input.toTensor().scalar_type()));
    }
  }
  return call;
}

void after(const at::RecordFunction& function, at::ObserverContext* context) {
  auto* call = static_cast<Call*>(context);
  if (!call) return;
  innermost = call->outer;
  const auto one = [&](const at::Tensor& result) {
    if (!result.defined() || (call->is_copy && mantissa_bits(result.scalar_type()) >= call->widest_input))
      return;
    if (!result.has_storage()) return;
    const auto* storage = result.storage().unsafeGetStorageImpl();
    const auto here = [storage](const auto& other) { return other._unsafe_get_target() == storage; };
    if (std::any_of(call->moved.begin(), call->moved.end(), here)) return;
    perturb(result);
    call->moved.push_back(result.storage().getWeakStorageImpl());
  };
  for (const c10::IValue& output : function.outputs()) {
    if (output.isTensor()) one(output.toTensor());
    if (output.isTensorList()) {
      for (const at::Tensor& each : output.toTensorVector()) one(each);
    }
  }
  if (call->outer)
    call->outer->moved.insert(call->outer->moved.end(), call->moved.begin(), call->moved.end());
}

}  // namespace

Perturbation::Perturbation(std::uint64_t seed)
    : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(&before, &after)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}))) {
  pattern = {seed, mixed(seed)};
}

Perturbation::~Perturbation() {
  at::removeCallback(handle_);
}

void Perturbation::begin(int step) {
  pattern.state = mixed(pattern.seed ^ (static_cast<std::uint64_t>(step) << 32));
}

}  // namespace fsdp_cts::reference
