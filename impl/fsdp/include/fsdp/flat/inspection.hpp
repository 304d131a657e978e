#pragma once
// What a rank sees of the original parameters at any moment.
#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp::flat {

/// `length` elements from `start` on of a tensor of `shape`, flattened; none: 0 and 0. Whole: 0 and all.
struct FlatPiece {
  std::vector<int64_t> shape;
  int64_t start = 0;
  int64_t length = 0;
  bool whole = false;  ///< a tensor of `shape` itself; otherwise 1-D
};

/// An original parameter. Undefined tensors stand for None.
struct OriginalParameter {
  std::string name;      ///< from the module that was asked, as if unsharded
  bool managed = false;  ///< false: ignored, or no unit is above it. Then everything below is whole
  bool use_orig_params = false;
  bool requires_grad = false;
  at::Tensor slot;   ///< the object in the module: optimizers and user code change it where use_orig_params
  at::Tensor value;  ///< as exposed now; with use_orig_params = false a part of the flat parameter
  FlatPiece value_piece;
  at::Tensor
      gradient;  ///< as exposed now: none where whole parameters are shown between forward and backward
  FlatPiece gradient_piece;
  /// What an optimizer updates, and keys its state by: the object itself or the flat parameter. A state
  /// tensor of the shape of `updated` holds this parameter's elements [state_offset, state_offset +
  /// shard_piece.length).
  at::Tensor updated;
  int64_t state_offset = 0;
  FlatPiece shard_piece;  ///< what the optimizer has of it on this rank
};

/// All of them in the order of the unsharded model: registration order, own before children, tied ones once
/// at their first place. Works in every state, without communication.
std::vector<OriginalParameter> named_original_parameters(const torch::nn::Module& root);

/// Layout of one unit's flat parameter, in elements.
struct FlatParameterInfo {
  struct Member {
    std::string name;  ///< from the unit's module
    std::vector<int64_t> shape;
    int64_t offset;  ///< of its first element in the unsharded flat parameter
    int64_t numel;
  };
  std::vector<Member> members;
};
/// Empty for a unit without parameters. Throws InvalidState for a module that is no unit.
FlatParameterInfo flat_parameter_info(const torch::nn::Module& unit);

}  // namespace fsdp::flat
