// A module whose body is data: a list of ops over named values.
#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "harness/sdk/cpp/parameter_source.hpp"
#include "harness/sdk/cpp/recompute.hpp"

namespace fsdp_cts::sdk {
namespace {

// One op, its names turned into slots of the value table.
struct Op {
  enum class Kind {
    call,
    relu,
    add,
    mul,
    buffer,
    parameter,
    ones,
    cast_like,
    cast,
    finite_gradient,
    record,
    record_parameters
  };
  Kind kind = Kind::relu;
  std::vector<std::size_t> args = {};
  std::size_t to = 0;
  std::string name = {};  // child path, buffer, parameter
  std::string key = {};   // of a record
  std::vector<std::int64_t> shape = {};
  at::ScalarType dtype = at::kFloat;
  bool recompute = false;  // of a call
};

// The same values; backward raises where their gradient holds an inf or a NaN.
at::Tensor refusing_gradients_not_finite(const at::Tensor& values) {
  at::Tensor passed_on = values.view_as(values);
  if (passed_on.requires_grad())
    passed_on.register_hook([](const at::Tensor& gradient) {
      TORCH_CHECK(at::isfinite(gradient).all().item<bool>(), "a gradient is not finite");
    });
  return passed_on;
}

class Graph : public Module {
 public:
  Graph(const Json& d, const std::string& path, const ParameterSource& source)
      : Module("Graph", d.at("class")), recorder_(source.recorder()) {
    for (const Json& p : d.value("parameters", Json::array())) {
      declare_parameter(p.at(0), source.parameter(join_path(path, p.at(0)), p.at(1).at("shape")));
    }
    for (const Json& b : d.value("buffers", Json::array())) {
      const at::ScalarType dtype = dtype_from_name(b.at(1).value("dtype", "float32"));
      declare_buffer(b.at(0),
                     source.buffer(join_path(path, b.at(0)), b.at(1).at("shape"), source.dtype(dtype)));
    }
    forward_ = compile_body(d, source);
    const Json methods = d.value("methods", Json::object());
    for (const auto& [name, method] : methods.items()) methods_.emplace(name, compile_body(method, source));
  }

 private:
  struct Body {
    std::vector<std::string> names = {};  // of values, inputs first
    std::size_t input_count = 0;
    std::vector<Op> ops = {};
    std::vector<std::size_t> outputs = {};
  };

  Tensors body(Tensors inputs) override { return run(forward_, std::move(inputs)); }

  Tensors method_body(const std::string& name, Tensors* inputs) override {
    const auto found = methods_.find(name);
    if (found == methods_.end()) return Module::method_body(name, inputs);
    return inputs ? run(found->second, std::move(*inputs)) : Tensors();
  }

  Tensors run(const Body& of, Tensors inputs) {
    TORCH_CHECK_TYPE(inputs.size() == of.input_count, class_name(), " takes ", of.input_count, " inputs but ",
                     inputs.size(), " were given");
    const at::Device device = inputs.empty() ? at::Device(at::kCPU) : inputs.front().device();
    Tensors values(of.names.size());
    std::move(inputs.begin(), inputs.end(), values.begin());
    for (const Op& op : of.ops) run(op, values, device);
    Tensors outputs;
    for (const std::size_t slot : of.outputs) outputs.push_back(values[slot]);
    return outputs;
  }

  void run(const Op& op, Tensors& values, at::Device device) {
    const auto arg = [&](std::size_t i) -> const at::Tensor& { return values[op.args[i]]; };
    switch (op.kind) {
      case Op::Kind::call: {
        Tensors inputs;
        for (const std::size_t slot : op.args) inputs.push_back(values[slot]);
        Module& callee = child(op.name);
        const auto call = [&callee](Tensors given) { return callee.forward(std::move(given)); };
        Tensors outputs = op.recompute ? recomputed(call, std::move(inputs)) : call(std::move(inputs));
        TORCH_CHECK(outputs.size() == 1, "a called module must give one tensor; \"", op.name, "\" gave ",
                    outputs.size());
        values[op.to] = std::move(outputs.front());
        return;
      }
      case Op::Kind::relu:
        values[op.to] = at::relu(arg(0));
        return;
      case Op::Kind::add:
        values[op.to] = at::add(arg(0), arg(1));
        return;
      case Op::Kind::mul:
        values[op.to] = at::mul(arg(0), arg(1));
        return;
      case Op::Kind::buffer:
        values[op.to] = buffer(op.name);
        return;
      case Op::Kind::parameter:
        values[op.to] = parameter(op.name);
        return;
      case Op::Kind::ones:
        values[op.to] = at::ones(op.shape, at::TensorOptions().dtype(op.dtype).device(device));
        return;
      case Op::Kind::cast_like:
        values[op.to] = arg(0).to(child(op.name).parameter("weight").scalar_type());
        return;
      case Op::Kind::cast:
        values[op.to] = arg(0).to(op.dtype);
        return;
      case Op::Kind::finite_gradient:
        values[op.to] = refusing_gradients_not_finite(arg(0));
        return;
      case Op::Kind::record:
        recorder_->dtypes[op.key] = dtype_name(arg(0).scalar_type());
        return;
      case Op::Kind::record_parameters: {
        Recorder::Parameters seen;
        for (const Slot& slot : parameter_slots(child(op.name)))
          seen.emplace_back(slot.name, slot.tensor().sizes().vec());
        recorder_->parameters[op.key] = std::move(seen);
        return;
      }
    }
  }

  Body compile_body(const Json& d, const ParameterSource& source) {
    Body of;
    for (const Json& input : d.at("inputs")) value_slot(of, input);
    of.input_count = of.names.size();
    for (const Json& op : d.at("forward")) of.ops.push_back(compile(of, op, source));
    const Json& output = d.at("output");
    for (const Json& name : output.is_array() ? output : Json::array({output}))
      of.outputs.push_back(existing_slot(of, name));
    return of;
  }

  Op compile(Body& of, const Json& op, const ParameterSource& source) {
    const auto one = [&](const char* key, Op::Kind kind) {
      return Op{kind, {existing_slot(of, op.at(key))}};
    };
    Op result{};
    if (op.contains("call")) {
      result.kind = Op::Kind::call;
      for (const Json& name : op.at("args")) result.args.push_back(existing_slot(of, name));
      result.name = op.at("call");
      result.recompute = op.value("recompute", false);
    } else if (op.contains("relu")) {
      result = one("relu", Op::Kind::relu);
    } else if (op.contains("add") || op.contains("mul")) {
      const bool add = op.contains("add");
      result.kind = add ? Op::Kind::add : Op::Kind::mul;
      for (const Json& name : op.at(add ? "add" : "mul")) result.args.push_back(existing_slot(of, name));
    } else if (op.contains("buffer") || op.contains("parameter")) {
      const bool buffer = op.contains("buffer");
      result.kind = buffer ? Op::Kind::buffer : Op::Kind::parameter;
      result.name = op.at(buffer ? "buffer" : "parameter");
    } else if (op.contains("ones")) {
      result.kind = Op::Kind::ones;
      result.shape = op.at("ones").get<std::vector<std::int64_t>>();
      result.dtype = source.dtype(dtype_from_name(op.value("dtype", "float32")));
    } else if (op.contains("cast")) {
      const bool like = op.contains("like_weight_of");
      result = one("cast", like ? Op::Kind::cast_like : Op::Kind::cast);
      if (like) result.name = op.at("like_weight_of");
      if (!like) result.dtype = source.dtype(dtype_from_name(op.at("dtype").get<std::string>()));
    } else if (op.contains("finite_gradient")) {
      result = one("finite_gradient", Op::Kind::finite_gradient);
    } else if (op.contains("record")) {
      result = one("record", Op::Kind::record);
      result.key = op.at("as");
    } else if (op.contains("record_parameters")) {
      result.kind = Op::Kind::record_parameters;
      result.name = op.at("record_parameters");
      result.key = op.at("as");
    } else {
      throw std::invalid_argument("no graph op looks like " + op.dump());
    }
    if (op.contains("to")) result.to = value_slot(of, op.at("to"));
    return result;
  }

  static std::size_t value_slot(Body& of, const std::string& name) {
    const auto found = std::find(of.names.begin(), of.names.end(), name);
    if (found != of.names.end()) return static_cast<std::size_t>(found - of.names.begin());
    of.names.push_back(name);
    return of.names.size() - 1;
  }

  std::size_t existing_slot(const Body& of, const std::string& name) const {
    const auto found = std::find(of.names.begin(), of.names.end(), name);
    if (found == of.names.end())
      throw std::invalid_argument("graph " + class_name() + " uses \"" + name + "\" before it is made");
    return static_cast<std::size_t>(found - of.names.begin());
  }

  std::shared_ptr<Recorder> recorder_;
  Body forward_;
  std::map<std::string, Body> methods_;
};

}  // namespace

std::shared_ptr<Module> build_graph(const Json& d, const std::string& path, const ParameterSource& source) {
  return d.at("type") == "Graph" ? std::make_shared<Graph>(d, path, source) : nullptr;
}

}  // namespace fsdp_cts::sdk
