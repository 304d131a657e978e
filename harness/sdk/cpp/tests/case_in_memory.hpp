// A small case for tests: models, plan and program as JSON, data as tensors, in a folder that goes with it.
#pragma once

#include <ATen/ATen.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "harness/protocol/safetensors.hpp"
#include "harness/sdk/cpp/case.hpp"
#include "harness/sdk/cpp/tensors.hpp"

namespace fsdp_cts::sdk {

class CaseInMemory {
 public:
  explicit CaseInMemory(int world = 1) {
    std::string pattern = (std::filesystem::temp_directory_path() / "fsdp-cts-test-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    message_ = {{"type", "case"},
                {"case", 1},
                {"id", "test"},
                {"world", world},
                {"scratch", folder_.string()},
                {"data", (folder_ / "data.safetensors").string()},
                {"switches", Json::object()},
                {"models", Json::object()},
                {"plans", Json::object()},
                {"program", Json::array()}};
  }
  ~CaseInMemory() { std::filesystem::remove_all(folder_); }
  CaseInMemory(const CaseInMemory&) = delete;
  CaseInMemory& operator=(const CaseInMemory&) = delete;

  CaseInMemory& model(const Json& description, const std::string& instance = "model") {
    message_["models"][instance] = description;
    return *this;
  }
  CaseInMemory& plan(const Json& plan, const std::string& instance = "model") {
    message_["plans"][instance] = plan;
    return *this;
  }
  CaseInMemory& steps(const std::vector<Json>& steps) {
    for (const Json& step : steps) message_["program"].push_back(step);
    return *this;
  }
  CaseInMemory& set(const std::string& key, const Json& value) {
    message_[key] = value;
    return *this;
  }
  CaseInMemory& tensor(const std::string& name, const at::Tensor& value) {
    data_[name] = to_host(value);
    return *this;
  }
  CaseInMemory& parameter(const std::string& name, const at::Tensor& value) {
    return tensor("parameters/model/" + name, value);
  }
  CaseInMemory& input(const std::string& name, const at::Tensor& value) {
    return tensor("inputs/" + name, value);
  }

  // Writes the data file.
  Json message() const {
    write_safetensors(folder_ / "data.safetensors", data_);
    return message_;
  }
  Case parsed() const { return parse_case(message()); }
  const TensorMap& data() const { return data_; }

 private:
  std::filesystem::path folder_;
  Json message_;
  TensorMap data_;
};

inline Json linear(int in, int out, bool bias = true) {
  return {{"type", "Linear"}, {"class", "Linear"}, {"in", in}, {"out", out}, {"bias", bias}};
}

inline Json sequential(const std::vector<Json>& modules) {
  Json children = Json::array();
  for (std::size_t i = 0; i < modules.size(); ++i)
    children.push_back(Json::array({std::to_string(i), modules[i]}));
  return {{"type", "Sequential"}, {"class", "Sequential"}, {"children", children}};
}

// k * unit for k = -levels … levels, over and over: sums and products of a few of them are exact.
inline at::Tensor dyadic(std::vector<std::int64_t> shape, int shift = 0, int levels = 4, double unit = 0.25) {
  at::Tensor counter = at::arange(c10::multiply_integers(shape), at::kLong) * 5 + shift;
  return (at::remainder(counter, 2 * levels + 1) - levels).to(at::kFloat).mul(unit).view(shape);
}

}  // namespace fsdp_cts::sdk
