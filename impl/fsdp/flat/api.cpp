#include "fsdp/flat/api.hpp"

namespace fsdp::flat {

const char* python_name(ShardingStrategy strategy) {
  switch (strategy) {
    case ShardingStrategy::full_shard:
      return "FULL_SHARD";
    case ShardingStrategy::shard_grad_op:
      return "SHARD_GRAD_OP";
    case ShardingStrategy::no_shard:
      return "NO_SHARD";
    case ShardingStrategy::hybrid_shard:
      return "HYBRID_SHARD";
    case ShardingStrategy::hybrid_shard_zero2:
      return "_HYBRID_SHARD_ZERO2";
  }
  return "";
}

bool is_hybrid(ShardingStrategy strategy) {
  return strategy == ShardingStrategy::hybrid_shard || strategy == ShardingStrategy::hybrid_shard_zero2;
}

bool MixedPrecision::operator==(const MixedPrecision& other) const {
  return param_dtype == other.param_dtype && reduce_dtype == other.reduce_dtype &&
         buffer_dtype == other.buffer_dtype && keep_low_precision_grads == other.keep_low_precision_grads &&
         cast_forward_inputs == other.cast_forward_inputs &&
         cast_root_forward_inputs == other.cast_root_forward_inputs;
}

}  // namespace fsdp::flat
