#include "flat/wrap/frozen_parameters.hpp"

#include <c10/util/Exception.h>

#include <deque>
#include <unordered_map>

#include "base/python_text.hpp"
#include "fsdp/errors.hpp"

namespace fsdp {
namespace {

struct ManagedName {
  at::Tensor parameter;
  std::string name;
};

// Breadth first; what was visited belongs to a module that is wrapped itself. A parameter met again keeps its
// place and takes the later name.
std::vector<ManagedName> managed_names(const NamedModule& wrapped, const ParameterSet& ignored_params,
                                       ModuleSet& visited) {
  std::vector<ManagedName> managed;
  std::unordered_map<const c10::TensorImpl*, size_t> places;
  std::deque<NamedModule> queue{wrapped};
  visited.insert(wrapped.module.get());
  while (!queue.empty()) {
    const NamedModule at = std::move(queue.front());
    queue.pop_front();
    for (const auto& own : at.module->named_parameters(/*recurse=*/false)) {
      const auto* impl = own.value().unsafeGetTensorImpl();
      if (!own.value().defined() || ignored_params.contains(impl)) continue;
      const auto name = qualified(at.name, own.key());
      const auto [place, first] = places.try_emplace(impl, managed.size());
      if (first) {
        managed.push_back({own.value(), name});
      } else {
        managed[place->second].name = name;
      }
    }
    for (const auto& child : at.module->named_children()) {
      if (visited.insert(child.value().get()).second)
        queue.push_back({qualified(at.name, child.key()), child.value()});
    }
  }
  return managed;
}

struct Kind {
  std::vector<std::string> names;
  int64_t numel = 0;
};

std::string message(const std::string& module, const Kind& trainable, const Kind& frozen,
                    bool use_orig_params) {
  const std::string consequence =
      use_orig_params
          ? c10::str(" We do not recommend wrapping such modules since the gradient memory usage will be ",
                     "higher than expected (", frozen.numel + trainable.numel, " numel instead of ",
                     trainable.numel, " numel before sharding via reduce-scatter). ")
          : " FSDP does not support wrapping such modules when use_orig_params=False. ";
  return c10::str(module, " has both parameters with requires_grad=True and False.", consequence,
                  "If possible, wrap the frozen parameters with FSDP separately.\n",
                  "The following parameters have requires_grad=True:\n", python_list(trainable.names),
                  "\nThe following parameters have requires_grad=False:\n", python_list(frozen.names));
}

}  // namespace

void validate_frozen_params(const std::shared_ptr<torch::nn::Module>& root, const ModuleSet& modules_to_wrap,
                            const ParameterSet& ignored_params, bool use_orig_params) {
  ModuleSet visited;
  for (const NamedModule& at : post_order(root)) {
    if (!modules_to_wrap.contains(at.module.get())) continue;
    Kind trainable, frozen;
    for (const ManagedName& managed : managed_names(at, ignored_params, visited)) {
      Kind& kind = managed.parameter.requires_grad() ? trainable : frozen;
      kind.names.push_back(managed.name);
      kind.numel += managed.parameter.numel();
    }
    if (trainable.names.empty() || frozen.names.empty()) continue;
    const auto text = message(at.name, trainable, frozen, use_orig_params);
    if (!use_orig_params) throw InvalidArgument(text);
    TORCH_WARN(text);
  }
}

}  // namespace fsdp
