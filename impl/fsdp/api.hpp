#pragma once
// The values a user hands to fully_shard. Names and defaults are FSDP2's.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>

namespace fsdp {

struct MixedPrecisionPolicy {
  /// Of unsharded parameters, hence of compute. None: the original dtype.
  std::optional<at::ScalarType> param_dtype = std::nullopt;
  /// Of the gradient reduction. None: the dtype of the gradient.
  std::optional<at::ScalarType> reduce_dtype = std::nullopt;
  /// Floating-point outputs of forward are cast to it.
  std::optional<at::ScalarType> output_dtype = std::nullopt;
  /// Floating-point inputs are cast to param_dtype.
  bool cast_forward_inputs = true;
};

/// none: true for all but the root. bool: as it says. int: the number of ranks to reshard to. The other two
/// alternatives are what a configuration file may contain by mistake; they are refused with ValueError.
using ReshardAfterForward = std::variant<std::monostate, bool, int64_t, double, std::string>;

/// Dimension to shard a parameter on; none for dimension 0.
using ShardPlacementFn = std::function<std::optional<int64_t>(const at::Tensor& parameter)>;

enum class TrainingState { idle, forward, pre_backward, post_backward };

/// sharded_post_forward: over the smaller group of an int `reshard_after_forward`.
enum class ShardedState { sharded, sharded_post_forward, unsharded };

}  // namespace fsdp
