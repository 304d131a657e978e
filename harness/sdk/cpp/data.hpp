// The data file of a case as one rank sees it.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "harness/protocol/tensor.hpp"

namespace fsdp_cts::sdk {

class Data {
 public:
  Data() = default;
  explicit Data(const std::filesystem::path& file, int rank = 0);
  // `widen`: every floating tensor comes as float64 (the oracle's `precision: float64`).
  Data(std::shared_ptr<const TensorMap> tensors, int rank, bool widen = false);

  // A fresh copy of `name@rank`, else of `name`; nothing when the file has neither.
  std::optional<at::Tensor> find(const std::string& name) const;
  at::Tensor get(const std::string& name) const;    // throws std::invalid_argument naming what is missing
  at::Tensor input(const std::string& name) const;  // get("inputs/" + name)

  int rank() const { return rank_; }
  bool widened() const { return widen_; }

 private:
  std::shared_ptr<const TensorMap> tensors_ = std::make_shared<TensorMap>();
  int rank_ = 0;
  bool widen_ = false;
};

}  // namespace fsdp_cts::sdk
