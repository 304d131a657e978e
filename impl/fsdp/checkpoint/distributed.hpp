#pragma once
// The format of torch.distributed.checkpoint: `.metadata`, a pickle that says which box of which tensor lies where, and files with
// such boxes one behind the other, each as torch.save writes it.
//
// Source: torch/distributed/checkpoint, metadata.py and filesystem.py of PyTorch 2.11.
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/files.hpp"
#include "checkpoint/manifest.hpp"

namespace fsdp::checkpoint::distributed {

constexpr const char* kMetadataName = ".metadata";

std::string file_name(int64_t generation, int64_t rank);
/// Of a file that this library wrote in this format; 0 for others.
int64_t generation_of(const std::string& file_name);

struct WrittenTensors {
  int64_t bytes = 0;
  std::vector<int64_t> offsets, sizes;  ///< of each tensor in the file
};
WrittenTensors write_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors);

/// What `.metadata` says of all that the manifest lists: tensors of the model are "model.<name>", values of the optimizer
/// "optimizer.state.<parameter>.<value>", as PyTorch's get_state_dict() nests them.
std::string metadata_of(const Manifest& manifest);

/// The tensors of `<model_key>.…` and `<optimizer_key>.state.…`; others are left out, and so is what is no tensor.
/// Throws RuntimeError with the path: it is damaged, a file it names is missing or too short, or a tensor is cut on more than one
/// dimension.
Manifest read_metadata(const std::filesystem::path& folder, const std::string& model_key,
                       const std::string& optimizer_key);

/// One tensor of torch.save, `size` bytes from `offset` on. Throws RuntimeError with the path.
at::Tensor read_tensor(const std::filesystem::path& path, int64_t offset, int64_t size);

}  // namespace fsdp::checkpoint::distributed
