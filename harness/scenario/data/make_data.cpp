#include "harness/scenario/data/make_data.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/scenario/case.hpp"
#include "harness/scenario/data/formula.hpp"
#include "harness/scenario/glob.hpp"
#include "harness/scenario/read/module_types.hpp"
#include "harness/scenario/resolve/module_state.hpp"

namespace fsdp_cts {
namespace {

std::int64_t count(const std::vector<std::int64_t>& shape) {
  std::int64_t n = 1;
  for (const std::int64_t extent : shape) n *= extent;
  return n;
}

// 1/sqrt(fan-in): what one output element sums over, as upstream's own initialisations do.
double fan_in_scale(const std::vector<std::int64_t>& shape) {
  std::int64_t fan_in = shape.size() == 1 ? shape[0] : 1;
  for (std::size_t i = 1; i < shape.size(); ++i) fan_in *= shape[i];
  return fan_in > 0 ? 1 / std::sqrt(static_cast<double>(fan_in)) : 1;
}

// One tensor's formula with everything but the label and the element's number fixed.
struct Formula {
  bool dyadic = false;
  double scale = 1;
  std::int64_t levels = 0;
  double unit = 0;

  Formula(const Json& section, const std::vector<std::int64_t>& shape)
      : dyadic(section.at("formula") == "dyadic") {
    if (dyadic) {
      levels = section.at("levels");
      unit = section.at("unit");
    } else {
      scale = section.at("scale") == "fan_in" ? fan_in_scale(shape) : section.at("scale").get<double>();
    }
  }

  double operator()(std::uint32_t u) const {
    return dyadic ? dyadic_value(u, levels, unit) : ordinary_value(u, scale);
  }
};

class DataMaker {
 public:
  explicit DataMaker(const Case& a_case)
      : case_(a_case), data_(a_case.data), seed_(a_case.data.at("seed").dump()) {}

  TensorMap make() {
    for (const auto& [instance, module] : case_.models.items())
      for (const StateShape& state : module_state(module)) {
        if (state.is_buffer)
          buffer(instance, module, state);
        else
          parameter(instance, state);
      }
    for (const auto& each : data_.at("inputs").items()) {
      const std::string& name = each.key();  // no structured binding: Clang 14 cannot capture one
      const Json& input = each.value();
      const std::int64_t iterations = input.value("per_iteration", std::int64_t{0});
      if (iterations == 0)
        by_rank("inputs/" + name, input.at("per_rank"),
                [&](const std::string& at) { return input_tensor(input, name + at); });
      for (std::int64_t i = 0; i < iterations; ++i) {
        const std::string numbered = name + "." + std::to_string(i);
        by_rank("inputs/" + numbered, input.at("per_rank"),
                [&](const std::string& at) { return input_tensor(input, numbered + at); });
      }
    }
    return std::move(tensors_);
  }

 private:
  // One tensor for all ranks, or one each, named with "@<rank>".
  template <typename Make>
  void by_rank(const std::string& key, bool per_rank, Make make) {
    if (!per_rank) tensors_.emplace(key, make(""));
    for (int rank = 0; per_rank && rank < case_.world; ++rank) {
      const std::string at = "@" + std::to_string(rank);
      tensors_.emplace(key + at, make(at));
    }
  }

  void parameter(const std::string& instance, const StateShape& state) {
    by_rank("parameters/" + instance + "/" + state.name, differs_by_rank(instance, state),
            [&](const std::string& at) { return parameter_tensor(state, at); });
  }

  bool differs_by_rank(const std::string& instance, const StateShape& state) const {
    const std::string globbed = instance + ":" + state.name;
    const Json globs = data_.value("per_rank", Json::array());
    return std::any_of(globs.begin(), globs.end(),
                       [&](const Json& glob) { return matches_glob(globbed, glob.get<std::string>()); });
  }

  HostTensor parameter_tensor(const StateShape& state, const std::string& at) const {
    const Json& section = data_.at("parameters");
    std::vector<double> values(static_cast<std::size_t>(count(state.shape)));
    const bool is_weight = state.name == "weight" || state.name.ends_with(".weight");
    const bool norm = is_norm(state.module_type);
    const double base = norm && is_weight ? 1 : 0;
    if (norm && section.at("norms") != "formula") {
      std::fill(values.begin(), values.end(), base);
      return make_tensor(state.dtype, state.shape, values);
    }
    // Without the instance: equal descriptions have equal values.
    const Stream stream(seed_ + "/parameters/" + state.name + at);
    const Formula formula(section, state.shape);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double value = formula(stream.at(i));
      values[i] = norm ? base + value / 4 : value;
    }
    return make_tensor(state.dtype, state.shape, values);
  }

  void buffer(const std::string& instance, const Json& module, const StateShape& state) {
    const std::string fill = !is_norm(state.module_type)           ? fill_of(module, state.name)
                             : state.name.ends_with("running_var") ? "ones"
                                                                   : "zeros";
    const bool by_formula = fill == "formula";
    by_rank("buffers/" + instance + "/" + state.name, by_formula && differs_by_rank(instance, state),
            [&](const std::string& at) {
              if (by_formula) return buffer_tensor(state, at);
              const std::vector<double> values(static_cast<std::size_t>(count(state.shape)),
                                               fill == "ones" ? 1 : 0);
              return make_tensor(state.dtype, state.shape, values);
            });
  }

  // As parameters have them; an integer is the nearest one.
  HostTensor buffer_tensor(const StateShape& state, const std::string& at) const {
    std::vector<double> values(static_cast<std::size_t>(count(state.shape)));
    const Stream stream(seed_ + "/buffers/" + state.name + at);
    const Formula formula(data_.at("parameters"), state.shape);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = formula(stream.at(i));
    return make_tensor(state.dtype, state.shape, values);
  }

  static std::string fill_of(const Json& module, const std::string& path) {
    const Json* owner = &module;
    std::size_t begin = 0;
    for (std::size_t dot = path.find('.'); dot != std::string::npos;
         begin = dot + 1, dot = path.find('.', begin)) {
      const auto& children = owner->at("children");
      const auto child = std::find_if(children.begin(), children.end(),
                                      [&](const Json& c) { return c[0] == path.substr(begin, dot - begin); });
      owner = &child->at(1);
    }
    for (const Json& entry : owner->at("buffers"))
      if (entry[0] == path.substr(begin)) return entry[1].at("fill");
    return "zeros";
  }

  HostTensor input_tensor(const Json& input, const std::string& name) const {
    const auto shape = input.at("shape").get<std::vector<std::int64_t>>();
    const DType dtype = dtype_from_name(input.at("dtype").get<std::string>());
    const std::string kind = input.at("kind");
    const auto modulo = input.value("modulo", std::int64_t{0});
    const Stream stream(seed_ + "/inputs/" + name);
    std::vector<double> values(static_cast<std::size_t>(count(shape)));
    if (kind == "ones" || kind == "full")
      std::fill(values.begin(), values.end(), kind == "ones" ? 1 : full_value(input));
    for (std::size_t i = 0; kind == "arange" && i < values.size(); ++i)
      values[i] =
          static_cast<double>(modulo ? static_cast<std::int64_t>(i) % modulo : static_cast<std::int64_t>(i));
    if (kind == "formula" && modulo)
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<double>(integer_value(stream.at(i), modulo));
    if (kind == "formula" && !modulo) {
      const Formula formula(input, shape);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = formula(stream.at(i));
    }
    return make_tensor(dtype, shape, values);
  }

  static double full_value(const Json& input) {
    const Json& value = input.at("value");
    if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
    return value == "inf" ? std::numeric_limits<double>::infinity() : value.get<double>();
  }

  const Case& case_;
  const Json& data_;
  const std::string seed_;
  TensorMap tensors_;
};

}  // namespace

TensorMap make_data(const Case& a_case) {
  return DataMaker(a_case).make();
}

}  // namespace fsdp_cts
