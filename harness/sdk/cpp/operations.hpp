// What an adapter implements. Every operation has a default that is right for a plain unsharded model on one
// rank, so an adapter overrides only what its library does differently; the interpreter turns programs into
// these calls and answers into messages.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <any>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/sdk/cpp/case.hpp"
#include "harness/sdk/cpp/context.hpp"
#include "harness/sdk/cpp/errors.hpp"
#include "harness/sdk/cpp/module.hpp"
#include "harness/sdk/cpp/optimizer.hpp"
#include "harness/sdk/cpp/placement.hpp"
#include "harness/sdk/cpp/scaler.hpp"

namespace fsdp_cts::sdk {

// What `hello` says (PROTOCOL.md §3); threads and library versions are added by the SDK.
struct Identity {
  std::string name, version;
  std::vector<std::string> apis;
  std::string backend = "none", device = "cpu";
  std::string reduction_order = "unspecified";  // rank | ring | unspecified
  std::map<std::string, std::string> environment;
};

// An instance of the case, alive from `build` to the end of the case or the next `build` of the same name.
struct Model {
  std::string instance;
  std::shared_ptr<Module> module;  // or a part of it, where a step names one; then names are relative to that
  Json plan;                       // null: none
};

// A parameter as this rank exposes it now. Optimizers update `value` in place.
struct Parameter {
  std::string name;
  at::Tensor value;
  Placement placement;
  at::Tensor gradient;  // undefined: None
  Placement gradient_placement;
  std::optional<bool> requires_grad = std::nullopt;  // nothing: as `value` says
};

struct StateDict {
  std::vector<Exposed> items;  // detached copies
  std::any native = {};        // what the library or the optimizer gave, if `items` are not all of it
};

struct FullStateDictOptions {
  bool rank0_only = false;      // the other ranks take part and get nothing
  bool offload_to_cpu = false;  // its tensors lie in host memory
};

// What `save_checkpoint` and `load_checkpoint` are about.
struct Checkpoint {
  std::string format;            // native | safetensors (PROTOCOL.md §7)
  std::filesystem::path folder;  // exists; the same for all ranks
  Model* model = nullptr;
  Optimizer* optimizer = nullptr;  // null: weights only
  // When loading: who has by now what the checkpoint must hold. For a reference, which saves nothing.
  Model* like = nullptr;
  Optimizer* optimizer_like = nullptr;
};

struct Unit {
  std::string module, class_name;
  Json settings = Json::object();
  std::vector<std::string> parameters;
};

class Operations {
 public:
  virtual ~Operations() = default;

  virtual Identity identity() const = 0;
  // Reason why this case is not for this testee, from the case alone (`features` helps). Asked before
  // anything else.
  virtual std::optional<std::string> unsupported(const Case& a_case) const;
  // First call of a case: make or reuse the process group (step −1 of the protocol). Ranks have no models
  // yet.
  virtual void rendezvous(const Case& a_case);
  virtual void end_case() {}  // models are gone; always called after rendezvous
  virtual c10::Device device() const { return c10::Device(c10::DeviceType::CPU); }
  // An exception of the library in its own words; nothing: the SDK's mapping (errors.hpp).
  virtual std::optional<ErrorReport> describe(std::exception_ptr) const { return std::nullopt; }

  // Instruments below the library, for devices that have them.
  // Lives while the SDK does something to look at the program that is no part of it.
  virtual std::shared_ptr<void> observing() { return nullptr; }
  // What the device has found since the last call: PROTOCOL.md, message `finding`, without case, rank and step.
  virtual std::vector<Json> device_findings() { return {}; }
  // Memory and waits of the host since the last call: PROTOCOL.md, message `device_use`, without case, rank and
  // step. Null: nobody counts.
  virtual Json device_use() { return nullptr; }
  // Operators given to the device in this case; nothing: nobody counts.
  virtual std::optional<std::uint64_t> device_launches() { return std::nullopt; }
  // Bytes on the device beyond what was there when the case began, now that nothing of it is left; nothing: nobody counts.
  virtual std::optional<std::int64_t> device_kept_bytes() { return std::nullopt; }

  // Construction.
  // What moves a module that was built on the host to the meta device; null: it is built there.
  virtual std::function<void(Module&)> to_meta() { return nullptr; }
  virtual void shard(Model& model);        // applies model.plan; replaces model.module if it must
  virtual void materialize(Model& model);  // from meta: to_empty, then this rank's values from context().data
  virtual void move(Model& model);         // from wherever it was built to device()
  // Floating parameters and buffers, sharded or not; with a pattern the parameters that it is found in.
  virtual void cast(Model& model, at::ScalarType dtype, const std::string& match);
  virtual std::unique_ptr<Optimizer> make_optimizer(Model& model, const Json& verb);
  // For that optimizer, which is of that model and lives longer.
  virtual std::unique_ptr<Scaler> make_scaler(Model& model, Optimizer& optimizer, const Json& verb);

  // Training.
  virtual Tensors forward(Model& model, const std::string& module,
                          Tensors inputs);  // module: path, "" is all
  virtual Tensors call_method(Model& model, const std::string& module, const std::string& method,
                              Tensors inputs);
  // From now on the method of that module counts as its forward.
  virtual void register_forward_method(Model& model, const std::string& module, const std::string& method);
  virtual void backward(const at::Tensor& loss, bool create_graph);
  // From now on `hook` gets the parameter whenever its gradient has been set or added to: by autograd, or,
  // where gradients are reduced, once the reduced one is there. Several hooks run in the order in which they came.
  virtual void hook_gradient(Model& model, const std::string& name, std::function<void(at::Tensor)> hook);
  virtual void set_training(Model& model, bool training);
  virtual void zero_grad(Model& model, bool set_to_none);
  virtual void control(Model& model,
                       const Json& verb);  // set_requires_gradient_sync … unshard … set_*_prefetch
  // Enters `no_sync` or `summon`; the returned action leaves it and may throw. (`no_grad` is the
  // interpreter's.)
  virtual std::function<void()> enter(Model& model, const Json& verb);
  virtual at::Tensor clip_grad_norm(Model& model, double max_norm, double norm_type);
  // Waits here and now: on a CPU the host; on an accelerator what is put on the current stream next.
  virtual void sleep(std::chrono::milliseconds duration);
  // Of observation `clock`, from any beginning; delays that a simulation only counts have passed on it.
  virtual std::chrono::milliseconds clock() const;
  virtual void delay(std::chrono::milliseconds duration,
                     const std::string& at);  // from now on, before_reduce | before_free

  // Multiplies all tensors at once and in place, as multi-tensor optimizers do; some may have no elements.
  virtual void foreach_mul(const std::vector<at::Tensor>& tensors, double factor);

  // State.
  virtual std::vector<Parameter> parameters(Model& model);  // registration order, tied ones once
  virtual std::vector<Exposed> full_parameters(Model& model);
  virtual std::vector<Exposed> buffers(Model& model);
  // full | sharded | local. Of a local one the items are what it has of each original parameter.
  virtual StateDict state_dict(Model& model, const std::string& kind);
  // A full one with options of its own. The default has none and throws NotImplementedError.
  virtual StateDict full_state_dict(Model& model, const FullStateDictOptions& options);
  virtual void load_state_dict(Model& model, const StateDict& state);
  // A full one, of which only the first rank's is looked at. The default throws NotImplementedError.
  virtual void broadcast_state_dict(Model& model, const StateDict& state);
  // Items are named <parameter>/<state>; what has no parameter's shape, as step counters, is in `native`
  // only.
  virtual StateDict optimizer_state_dict(Model& model, Optimizer& optimizer, const std::string& kind);
  virtual void load_optimizer_state_dict(Model& model, Optimizer& optimizer, const StateDict& state);
  // Collective. The default has no format and throws NotImplementedError.
  virtual void save_checkpoint(const Checkpoint& checkpoint);
  virtual void load_checkpoint(const Checkpoint& checkpoint);
  virtual void zero_parameters(Model& model);
  virtual void set_requires_grad(Model& model, const std::string& name, bool value);
  virtual void set_buffer(Model& model, const std::string& name, at::ScalarType dtype);
  // For `mutate`: the tensor now in the module's slot, and another one put there by user code.
  virtual at::Tensor exposed(Model& model, const std::string& name);
  virtual void replace(Model& model, const std::string& name, at::Tensor tensor);

  // What only an FSDP library has.
  virtual std::vector<Unit> units(Model&) { return {}; }
  virtual std::map<std::string, std::int64_t> counters(Model&) { return {}; }
  virtual std::string training_state(Model&) { return "idle"; }
  // Of this rank's device, in bytes: `current`, and `peak`, the most since the last call. Nothing on a CPU.
  virtual std::map<std::string, std::int64_t> memory();
  // Nanoseconds since the last call, or since the case began: duration, compute, communication,
  // exposed_communication. Nothing where no time is simulated.
  virtual std::map<std::string, std::int64_t> virtual_time() { return {}; }

  // The running case; set by the interpreter before `rendezvous`.
  Context& context() { return *context_; }
  const Context& context() const { return *context_; }
  void attach(Context* context) { context_ = context; }

 private:
  Context* context_ = nullptr;
};

}  // namespace fsdp_cts::sdk
