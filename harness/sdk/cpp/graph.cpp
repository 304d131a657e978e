// A module whose body is data: a list of ops over named values.
#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>

#include "harness/sdk/cpp/parameter_source.hpp"

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
};

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
    for (const Json& input : d.at("inputs")) value_slot(input);
    input_count_ = names_.size();
    for (const Json& op : d.at("forward")) ops_.push_back(compile(op, source));
    const Json& output = d.at("output");
    for (const Json& name : output.is_array() ? output : Json::array({output}))
      outputs_.push_back(existing_slot(name));
  }

 private:
  Tensors body(Tensors inputs) override {
    TORCH_CHECK_TYPE(inputs.size() == input_count_, class_name(), " takes ", input_count_, " inputs but ",
                     inputs.size(), " were given");
    Tensors values(names_.size());
    std::move(inputs.begin(), inputs.end(), values.begin());
    for (const Op& op : ops_) run(op, values);
    Tensors outputs;
    for (const std::size_t slot : outputs_) outputs.push_back(values[slot]);
    return outputs;
  }

  void run(const Op& op, Tensors& values) {
    const auto arg = [&](std::size_t i) -> const at::Tensor& { return values[op.args[i]]; };
    switch (op.kind) {
      case Op::Kind::call: {
        Tensors inputs;
        for (const std::size_t slot : op.args) inputs.push_back(values[slot]);
        Tensors outputs = child(op.name).forward(std::move(inputs));
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
        values[op.to] = at::ones(op.shape, at::TensorOptions().dtype(op.dtype).device(any_device(values)));
        return;
      case Op::Kind::cast_like:
        values[op.to] = arg(0).to(child(op.name).parameter("weight").scalar_type());
        return;
      case Op::Kind::cast:
        values[op.to] = arg(0).to(op.dtype);
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

  at::Device any_device(const Tensors& values) const {
    return input_count_ > 0 ? values.front().device() : at::Device(at::kCPU);
  }

  Op compile(const Json& op, const ParameterSource& source) {
    const auto one = [&](const char* key, Op::Kind kind) { return Op{kind, {existing_slot(op.at(key))}}; };
    Op result{};
    if (op.contains("call")) {
      result.kind = Op::Kind::call;
      for (const Json& name : op.at("args")) result.args.push_back(existing_slot(name));
      result.name = op.at("call");
    } else if (op.contains("relu")) {
      result = one("relu", Op::Kind::relu);
    } else if (op.contains("add") || op.contains("mul")) {
      const bool add = op.contains("add");
      result.kind = add ? Op::Kind::add : Op::Kind::mul;
      for (const Json& name : op.at(add ? "add" : "mul")) result.args.push_back(existing_slot(name));
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
    if (op.contains("to")) result.to = value_slot(op.at("to"));
    return result;
  }

  std::size_t value_slot(const std::string& name) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found != names_.end()) return static_cast<std::size_t>(found - names_.begin());
    names_.push_back(name);
    return names_.size() - 1;
  }

  std::size_t existing_slot(const std::string& name) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end())
      throw std::invalid_argument("graph " + class_name() + " uses \"" + name + "\" before it is made");
    return static_cast<std::size_t>(found - names_.begin());
  }

  std::shared_ptr<Recorder> recorder_;
  std::vector<std::string> names_;
  std::size_t input_count_ = 0;
  std::vector<Op> ops_;
  std::vector<std::size_t> outputs_;
};

}  // namespace

std::shared_ptr<Module> build_graph(const Json& d, const std::string& path, const ParameterSource& source) {
  return d.at("type") == "Graph" ? std::make_shared<Graph>(d, path, source) : nullptr;
}

}  // namespace fsdp_cts::sdk
