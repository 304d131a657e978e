// Where a module under construction gets its initial tensors from.
#pragma once

#include <c10/core/Device.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/sdk/cpp/case.hpp"
#include "harness/sdk/cpp/data.hpp"
#include "harness/sdk/cpp/module.hpp"
#include "harness/sdk/cpp/recorder.hpp"

namespace fsdp_cts::sdk {

class ParameterSource {
 public:
  ParameterSource(const Data& data, std::string instance, c10::Device device,
                  std::shared_ptr<Recorder> recorder)
      : data_(data), instance_(std::move(instance)), device_(device), recorder_(std::move(recorder)) {}

  // `path` is the tensor's fully-qualified name. A tied alias comes undefined: the owner's tensor is put
  // there later.
  at::Tensor parameter(const std::string& path, const std::vector<std::int64_t>& shape) const;
  at::Tensor buffer(const std::string& path, const std::vector<std::int64_t>& shape,
                    at::ScalarType dtype) const;
  void add_tie(const std::string& alias, const std::string& owner);

  const std::shared_ptr<Recorder>& recorder() const { return recorder_; }
  // The dtype to use where a description names `dtype`: itself, or float64 for a widened run.
  at::ScalarType dtype(at::ScalarType dtype) const;

 private:
  at::Tensor value(const std::string& kind, const std::string& path, const std::vector<std::int64_t>& shape,
                   at::ScalarType dtype_on_meta) const;

  const Data& data_;
  std::string instance_;
  c10::Device device_;
  std::shared_ptr<Recorder> recorder_;
  std::map<std::string, std::string> owner_of_;  // alias -> owner
};

// Makes a module and everything below it.
std::shared_ptr<Module> build_module(const Json& description, const std::string& path,
                                     ParameterSource& source);

// By kind; null when `type` is not of that kind.
std::shared_ptr<Module> build_layer(const Json& description, const std::string& path,
                                    const ParameterSource& source);
std::shared_ptr<Module> build_batch_norm(const Json& description, const std::string& path,
                                         const ParameterSource& source);
std::shared_ptr<Module> build_attention(const Json& description, const std::string& path,
                                        ParameterSource& source);
std::shared_ptr<Module> build_container(const Json& description);  // its children are declared by the caller
std::shared_ptr<Module> build_graph(const Json& description, const std::string& path,
                                    const ParameterSource& source);

std::string join_path(const std::string& prefix, const std::string& name);

}  // namespace fsdp_cts::sdk
