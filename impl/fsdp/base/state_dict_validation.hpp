#pragma once
// What is wrong with a state dict, found before anything is loaded.
#include <torch/nn/module.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/python_text.hpp"
#include "fsdp/errors.hpp"
#include "fsdp/sharded_tensor.hpp"
#include "fsdp/wrap/module_class.hpp"

namespace fsdp {

/// Collects the faults of a state dict against a module; `finish` throws RuntimeError with all of them.
class StateDictValidation {
 public:
  explicit StateDictValidation(const torch::nn::Module& module)
      : module_name_(nominal_classes(module).front()) {}

  /// The given values by name; names that `own` lacks, or that are given twice or not at all, are faults.
  template <class Value>
  std::map<std::string, const Value*> by_name(const std::vector<std::string>& own,
                                              const std::vector<std::pair<std::string, Value>>& given) {
    std::map<std::string, const Value*> found;
    std::vector<std::string> missing, unexpected;
    for (const auto& [name, value] : given) {
      if (!found.emplace(name, &value).second) faults_ += "\n\tKey given twice: '" + name + "'.";
    }
    std::set<std::string> known;
    for (const auto& name : own) {
      known.insert(name);
      if (!found.contains(name)) missing.push_back(name);
    }
    for (const auto& [name, value] : given) {
      if (!known.contains(name)) unexpected.push_back(name);
    }
    if (!missing.empty()) faults_ += "\n\tMissing key(s) in state_dict: " + python_list(missing) + ".";
    if (!unexpected.empty())
      faults_ += "\n\tUnexpected key(s) in state_dict: " + python_list(unexpected) + ".";
    return found;
  }

  void same_shape(const std::string& name, at::IntArrayRef given, at::IntArrayRef expected) {
    if (given == expected) return;
    faults_ += "\n\tsize mismatch for " + name + ": the state has shape " + python_size(given) +
               ", the module expects " + python_size(expected) + ".";
  }
  void same_dtype(const std::string& name, at::ScalarType given, at::ScalarType expected) {
    if (given == expected) return;
    faults_ += "\n\tdtype mismatch for " + name + ": the state has " + python_text(given) +
               ", the module expects " + python_text(expected) + ".";
  }
  /// Of the same whole, the same part of it, and a tensor of that part's shape.
  void same_shard(const std::string& name, const ShardedTensor& given, const ShardLayout& expected) {
    if (given.layout.global_shape != expected.global_shape)
      return same_shape(name, given.layout.global_shape, expected.global_shape);
    if (!same_part(given.layout, expected)) return other_part(name, given.layout, expected);
    same_shape(name + " (shard)", given.local.sizes(), expected.local_shape());
  }
  void same_layout(const std::string& name, const ShardLayout& given, const ShardLayout& expected) {
    if (!same_part(given, expected)) other_part(name, given, expected);
  }
  void fault(const std::string& text) { faults_ += "\n\t" + text; }
  void finish() const {
    if (!faults_.empty())
      throw RuntimeError("Error(s) in loading state_dict for " + module_name_ + ":" + faults_);
  }

 private:
  static bool same_part(const ShardLayout& given, const ShardLayout& expected) {
    return given.dim == expected.dim && given.start == expected.start && given.length == expected.length;
  }
  void other_part(const std::string& name, const ShardLayout& given, const ShardLayout& expected) {
    faults_ += "\n\tlayout mismatch for " + name + ": the state has indices " + range(given) +
               ", this rank holds " + range(expected) +
               ". It was saved by another rank or for another number of ranks.";
  }
  static std::string range(const ShardLayout& layout) {
    return std::to_string(layout.start) + " to " + std::to_string(layout.start + layout.length) +
           " of dimension " + std::to_string(layout.dim);
  }
  std::string module_name_;
  std::string faults_;
};

}  // namespace fsdp
