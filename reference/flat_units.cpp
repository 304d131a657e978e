#include "reference/flat_units.hpp"

#include <ATen/ATen.h>

#include "harness/sdk/cpp/errors.hpp"
#include "reference/wrap_policy.hpp"

namespace fsdp_cts::reference {
namespace {

class Builder {
 public:
  Builder(sdk::Module& root, const Json& plan, sdk::Context& context)
      : root_(root), plan_(plan), context_(context), slots_(parameter_slots_with_ties(root)) {}

  std::vector<std::unique_ptr<Unit>> units;

  void apply(const Json& asked) {
    const Json unit = with_context(asked);
    if (unit.is_null()) return;
    const std::string path = unit.at("modules").at(0);
    sdk::Module& module = root_.child(path);
    ignore(unit);
    if (unit.contains("auto_wrap") && !unit.at("auto_wrap").is_null()) {
      Json settings = unit;
      settings["use_orig_params"] = plan_.at("api") == "composable" || unit.value("use_orig_params", false);
      for (const WrapTarget& target :
           wrap_targets({module, settings, wrapped_, ignored_modules_, ignored_}, context_)) {
        wrap(dotted(path, target.path), *target.module, target.settings);
      }
      cast_around_full_precision(module, unit.value("mixed_precision", Json()));
    }
    wrap(path, module, unit);
  }

  void find_roots() {
    for (const auto& unit : units) {
      const bool inside_another = std::any_of(units.begin(), units.end(), [&](const auto& other) {
        return other != unit && unit->is_inside(other->path());
      });
      static_cast<FlatUnit&>(*unit).set_root(!inside_another);
    }
  }

 private:
  // What `wrap()` hands to the constructor: its own arguments before those of the context. Null: there is no
  // context.
  static Json with_context(const Json& unit) {
    if (!unit.contains("enable_wrap")) return unit;
    Json settings = unit.at("enable_wrap");
    if (settings == "outside") return nullptr;
    settings.update(unit);
    return settings;
  }

  void ignore(const Json& unit) {
    for (const Json& name : unit.value("ignored_parameters", Json::array())) {
      for (const sdk::Slot& slot : slots_) {
        if (slot.name == name) ignored_.insert(slot.tensor().unsafeGetTensorImpl());
      }
    }
    Json ignored = unit.value("ignored_modules", Json::array());
    for (const Json& path : unit.value("ignored_state_modules", Json::array())) ignored.push_back(path);
    for (const Json& path : ignored) {
      for (const auto& [name, module] : named_modules(root_.child(path))) {
        ignored_modules_.insert(module);
        for (const std::string& key : module->parameter_names())
          ignored_.insert(module->parameter(key).unsafeGetTensorImpl());
      }
    }
  }

  // The unit's own: below its module, not in a nested unit, not ignored, each tensor once.
  void wrap(const std::string& path, sdk::Module& module, const Json& unit) {
    const RankPlace place{context_.rank, context_.world, context_.data.widened()};
    FlatSettings settings = flat_settings(unit, plan_, place);
    if (settings.group.size == 1 && settings.group.replicas == 1) {
      const std::string asked = unit.value("sharding_strategy", "FULL_SHARD");
      if (asked != "NO_SHARD") {
        context_.warn("UserWarning", "FSDP is switching to use `NO_SHARD` instead of ShardingStrategy." +
                                         asked + " since the world size is 1.");
      }
    }
    std::vector<UnitParameter> parameters;
    std::vector<FlatUnit::Buffer> buffers;
    collect(module, path, parameters, buffers);
    wrapped_.insert(&module);
    auto made = std::make_unique<FlatUnit>(path, module, std::move(parameters), std::move(settings));
    made->buffers = std::move(buffers);
    units.push_back(std::move(made));
  }

  void collect(sdk::Module& module, const std::string& path, std::vector<UnitParameter>& parameters,
               std::vector<FlatUnit::Buffer>& buffers) {
    if (wrapped_.contains(&module) || ignored_modules_.contains(&module)) return;
    for (const std::string& key : module.parameter_names()) {
      const at::Tensor& tensor = module.parameter(key);
      if (ignored_.contains(tensor.unsafeGetTensorImpl()) ||
          !claimed_.insert(tensor.unsafeGetTensorImpl()).second)
        continue;
      UnitParameter parameter{dotted(path, key), {}, tensor};
      for (const sdk::Slot& slot : slots_) {
        if (slot.tensor().is_same(tensor)) parameter.slots.push_back(slot);
      }
      parameters.push_back(std::move(parameter));
    }
    for (const std::string& key : module.buffer_names()) {
      const at::Tensor& buffer = module.buffer(key);
      if (buffer.is_floating_point())
        buffers.push_back({&module, key, dotted(path, key), buffer.scalar_type()});
    }
    for (const auto& [name, child] : module.child_modules())
      collect(*child, dotted(path, name), parameters, buffers);
  }

  // What keeps full precision computes in it whatever comes in, and gives back what came in.
  void cast_around_full_precision(sdk::Module& root, const Json& mixed_precision) {
    const at::ScalarType full = context_.data.widened() ? at::kDouble : at::kFloat;
    for (const auto& [name, module] : named_modules(root)) {
      if (!keeps_full_precision(mixed_precision, *module)) continue;
      const auto came_in = std::make_shared<std::optional<at::ScalarType>>();
      module->add_pre_forward_hook([came_in, full](sdk::Tensors inputs) {
        came_in->reset();  // the last forward's, which may have been of another dtype
        for (const at::Tensor& input : inputs) {
          if (input.is_floating_point() && input.scalar_type() != full) *came_in = input.scalar_type();
        }
        return cast_floating(std::move(inputs), full);
      });
      module->add_post_forward_hook(
          [came_in](sdk::Tensors outputs) { return cast_floating(std::move(outputs), *came_in); });
    }
  }

  sdk::Module& root_;
  const Json& plan_;
  sdk::Context& context_;
  std::vector<sdk::Slot> slots_;
  std::set<const sdk::Module*> wrapped_, ignored_modules_;
  std::set<const at::TensorImpl*> ignored_, claimed_;
};

}  // namespace

std::vector<std::unique_ptr<Unit>> flat_units(sdk::Module& root, const Json& plan, sdk::Context& context) {
  Builder builder(root, plan, context);
  for (const Json& unit : plan.at("units")) builder.apply(unit);
  builder.find_roots();
  return std::move(builder.units);
}

}  // namespace fsdp_cts::reference
