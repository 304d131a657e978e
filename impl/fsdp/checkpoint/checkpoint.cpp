#include "fsdp/checkpoint.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/python_text.hpp"
#include "base/state_dict_validation.hpp"
#include "base/text_exchange.hpp"
#include "checkpoint/distributed.hpp"
#include "checkpoint/files.hpp"
#include "checkpoint/manifest.hpp"
#include "flat/whole_parameters.hpp"
#include "fsdp/errors.hpp"
#include "fsdp/flat/fully_sharded_data_parallel.hpp"
#include "fsdp/flat/state_dict.hpp"

namespace fsdp {
namespace checkpoint {
namespace {

const CallSite kSite{"", false, Phase::state_dict};

/// Does something that may fail on this rank, then tells the others. What each rank's `act` returned, by
/// rank; throws the same RuntimeError on every rank if one failed. Collective.
std::vector<std::string> together(Communicator& world, const char* what,
                                  const std::function<std::string()>& act) {
  std::string own;
  try {
    own = "+" + act();
  } catch (const std::exception& error) {
    own = "-" + std::string(error.what());
  }
  auto all = all_gather_text(world, own, kSite);
  std::map<std::string, std::string> ranks_by_error;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].starts_with('+')) {
      all[rank].erase(0, 1);
      continue;
    }
    auto& ranks = ranks_by_error[all[rank].substr(1)];
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  }
  if (ranks_by_error.empty()) return all;
  std::string text = what;
  for (const auto& [error, ranks] : ranks_by_error) text += "\n\trank " + ranks + ": " + error;
  throw RuntimeError(text);
}

struct HeldPart {
  Key key;
  ShardedTensor tensor;
};

/// One line for every part, the same on every rank that has the same rows.
std::string listed(const HeldPart& part) {
  const auto& layout = part.tensor.layout;
  std::ostringstream line;
  line << part.key.parameter.size() << ' ' << part.key.parameter << ' ' << part.key.value.size() << ' '
       << part.key.value << ' ' << layout.dim << ' ' << layout.start << ' ' << layout.length;
  return line.str();
}

/// What this rank has of each tensor. A rank without rows has no part, except of a tensor that has none at
/// all.
std::vector<HeldPart> parts_of(const ShardedStateDict& model, const ShardedOptimizerState& optimizer) {
  std::vector<HeldPart> parts;
  const auto add = [&](Key key, const ShardedTensor& tensor) {
    if (!tensor.local.defined() || tensor.local.is_meta())
      throw RuntimeError("'" + key.text() + "' has no values: it is on the meta device.");
    if (safetensors_dtype(tensor.local.scalar_type()).empty()) {
      throw RuntimeError("'" + key.text() + "' has dtype " + python_text(tensor.local.scalar_type()) +
                         ", which a checkpoint cannot hold.");
    }
    if (tensor.local.numel() > 0 || tensor.layout.start == 0) parts.push_back({std::move(key), tensor});
  };
  for (const auto& [name, tensor] : model) add({name, ""}, tensor);
  for (const auto& [name, values] : optimizer) {
    for (const auto& [value, tensor] : values) add({name, value}, tensor);
  }
  return parts;
}

int64_t generation_of_any(const std::string& file_name) {
  return std::max(generation_of(file_name), distributed::generation_of(file_name));
}

/// One more than that of any file in the folder, so that no file of an older checkpoint is overwritten.
int64_t next_generation(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  int64_t last = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    last = std::max(last, generation_of_any(entry.path().filename()));
  return last + 1;
}

/// `index`: the file that makes the new one a checkpoint. That of the other format goes first.
void remove_other_generations(const std::filesystem::path& folder, int64_t generation,
                              const std::string& index) {
  std::error_code ignored;  // what is left over does no harm, and the next save tries again
  for (const std::string other : {kManifestName, distributed::kMetadataName}) {
    if (other != index) std::filesystem::remove(folder / other, ignored);
  }
  std::vector<std::filesystem::path> old;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const auto of_file = generation_of_any(entry.path().filename());
    if (of_file != 0 && of_file != generation) old.push_back(entry.path());
  }
  for (const auto& path : old) std::filesystem::remove(path, ignored);
}

std::string note_on(const ShardLayout& layout) {
  return "indices " + std::to_string(layout.start) + " to " + std::to_string(layout.start + layout.length) +
         " of dimension " + std::to_string(layout.dim) + " of " + python_size(layout.global_shape);
}

/// Writes the parts and returns their lines of the manifest.
std::string write_parts(const std::filesystem::path& folder, const std::string& name,
                        const std::vector<HeldPart>& parts, CheckpointFormat format) {
  std::vector<NamedTensor> tensors;
  for (const auto& [key, part] : parts) {
    tensors.push_back({(key.value.empty() ? "model/" : "optimizer/") + key.text(), note_on(part.layout),
                       part.local.detach().cpu().contiguous()});
  }
  std::vector<Piece> pieces;
  const auto add = [&](size_t i, int64_t offset, int64_t bytes) {
    const auto& tensor = tensors[i].tensor;
    pieces.push_back({parts[i].key, tensor.scalar_type(), parts[i].tensor.layout, name, offset, bytes,
                      checksum(tensor.const_data_ptr(), tensor.nbytes())});
  };
  if (format == CheckpointFormat::torch_distributed) {
    const auto written = distributed::write_tensors(folder / name, tensors);
    for (size_t i = 0; i < parts.size(); ++i) add(i, written.offsets[i], written.sizes[i]);
    return lines_of(name, written.bytes, pieces);
  }
  const auto written = write_safetensors(folder / name, tensors);
  for (size_t i = 0; i < parts.size(); ++i)
    add(i, written.offsets[i], static_cast<int64_t>(tensors[i].tensor.nbytes()));
  return lines_of(name, written.bytes, pieces);
}

/// The box of indices that a part holds: all of each dimension but one.
struct Box {
  std::vector<int64_t> begin, end;
};
Box box_of(const ShardLayout& layout) {
  Box box{std::vector<int64_t>(layout.global_shape.size(), 0), layout.global_shape};
  if (box.begin.empty()) return box;
  const auto dim = static_cast<size_t>(layout.dim);
  box.begin[dim] = layout.start;
  box.end[dim] = layout.start + layout.length;
  return box;
}
at::Tensor cut(at::Tensor tensor, const Box& held, const Box& wanted) {
  for (size_t dim = 0; dim < held.begin.size(); ++dim)
    tensor = tensor.narrow(static_cast<int64_t>(dim), wanted.begin[dim] - held.begin[dim],
                           wanted.end[dim] - wanted.begin[dim]);
  return tensor;
}

at::Tensor read_piece_data(const std::filesystem::path& folder, const Piece& piece) {
  const auto box = box_of(piece.layout);
  std::vector<int64_t> shape;
  for (size_t dim = 0; dim < box.begin.size(); ++dim) shape.push_back(box.end[dim] - box.begin[dim]);
  auto tensor = at::empty(shape, at::TensorOptions(at::kCPU).dtype(piece.dtype));
  const auto path = folder / piece.file;
  if (piece.encoding == Encoding::torch_save) {
    auto saved = distributed::read_tensor(path, piece.offset, piece.bytes);
    if (saved.sizes() != tensor.sizes() || saved.scalar_type() != piece.dtype)
      throw RuntimeError(path.string() + ": '" + piece.key.text() + "' is not what .metadata says.");
    return saved;
  }
  if (static_cast<int64_t>(tensor.nbytes()) != piece.bytes)
    throw RuntimeError(path.string() + ": '" + piece.key.text() + "' has another size than its shape.");
  read_bytes(path, piece.offset, tensor.mutable_data_ptr(), tensor.nbytes());
  if (checksum(tensor.const_data_ptr(), tensor.nbytes()) != piece.checksum) {
    throw RuntimeError(path.string() + " is damaged: the values of '" + piece.key.text() +
                       "' do not have the checksum that the manifest gives.");
  }
  return tensor;
}

/// The part of a tensor that `layout` describes, from wherever it lies.
at::Tensor read_part(const std::filesystem::path& folder, const std::vector<Piece>& pieces,
                     const ShardLayout& layout) {
  const auto wanted = box_of(layout);
  std::vector<int64_t> shape;
  for (size_t dim = 0; dim < wanted.begin.size(); ++dim) shape.push_back(wanted.end[dim] - wanted.begin[dim]);
  const auto part = at::empty(shape, at::TensorOptions(at::kCPU).dtype(pieces.front().dtype));
  int64_t missing = part.numel();
  for (const auto& piece : pieces) {
    const auto held = box_of(piece.layout);
    auto common = wanted;
    bool empty = part.numel() == 0;
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      common.begin[dim] = std::max(wanted.begin[dim], held.begin[dim]);
      common.end[dim] = std::min(wanted.end[dim], held.end[dim]);
      empty = empty || common.begin[dim] >= common.end[dim];
    }
    if (empty) continue;
    auto target = cut(part, wanted, common);
    target.copy_(cut(read_piece_data(folder, piece), held, common));
    missing -= target.numel();
  }
  if (missing != 0) {
    throw RuntimeError(folder.string() + ": the checkpoint does not hold " + note_on(layout) + " of '" +
                       pieces.front().key.text() + "' completely.");
  }
  return part;
}

bool is_flat(const torch::nn::Module& module) {
  const auto modules = module.modules();
  return std::any_of(modules.begin(), modules.end(),
                     [](const auto& one) { return flat::FullyShardedDataParallel::is(*one); });
}

/// Everything of a checkpoint that this rank needs, in host memory.
struct Loaded {
  ShardedStateDict model;
  ShardedOptimizerState optimizer;
};

/// `own`: what the module's sharded state dict holds. Throws RuntimeError with all faults of names, shapes
/// and dtypes, or with what cannot be read.
Loaded read_for(const std::filesystem::path& folder, const Manifest& manifest,
                const torch::nn::Module& module, const ShardedStateDict& own, bool optimizer) {
  StateDictValidation validation(module);
  std::vector<std::pair<std::string, const std::vector<Piece>*>> saved;
  std::vector<std::string> names;
  std::map<std::string, const ShardedTensor*> by_name;
  for (const auto& [name, tensor] : own) {
    names.push_back(name);
    by_name[name] = &tensor;
  }
  for (const auto& [key, pieces] : manifest.tensors) {
    if (key.value.empty()) saved.emplace_back(key.parameter, &pieces);
  }
  const auto given = validation.by_name(names, saved);
  for (const auto& [name, tensor] : own) {
    const auto found = given.find(name);
    if (found == given.end()) continue;
    const auto& piece = (*found->second)->front();
    validation.same_shape(name, piece.layout.global_shape, tensor.layout.global_shape);
    validation.same_dtype(name, piece.dtype, tensor.local.scalar_type());
  }
  const auto is_shaped = [&](const Key& key, const Piece& piece) {
    return !piece.layout.global_shape.empty() &&
           piece.layout.global_shape == by_name.at(key.parameter)->layout.global_shape;
  };
  for (const auto& [key, pieces] : manifest.tensors) {
    if (!optimizer || key.value.empty()) continue;
    if (!by_name.contains(key.parameter)) {
      validation.fault("Unexpected parameter in optimizer state: '" + key.parameter + "'.");
    } else if (!is_shaped(key, pieces.front()) &&
               c10::multiply_integers(pieces.front().layout.global_shape) != 1) {
      validation.same_shape(key.text(), pieces.front().layout.global_shape,
                            by_name.at(key.parameter)->layout.global_shape);
    }
  }
  validation.finish();

  Loaded loaded;
  for (const auto& [name, tensor] : own) {
    loaded.model.emplace_back(name, ShardedTensor{read_part(folder, *(*given.at(name)), tensor.layout),
                                                  tensor.layout, tensor.group});
  }
  if (!optimizer) return loaded;
  for (const auto& [key, pieces] : manifest.tensors) {
    if (key.value.empty()) continue;
    if (loaded.optimizer.empty() || loaded.optimizer.back().first != key.parameter)
      loaded.optimizer.emplace_back(key.parameter, std::map<std::string, ShardedTensor>{});
    auto& values = loaded.optimizer.back().second;
    const auto& parameter = *by_name.at(key.parameter);
    if (is_shaped(key, pieces.front())) {
      values[key.value] = {read_part(folder, pieces, parameter.layout), parameter.layout, parameter.group};
    } else {
      auto whole = pieces.front().layout;
      whole.start = 0;
      whole.length = whole.global_shape.empty() ? 0 : whole.global_shape[static_cast<size_t>(whole.dim)];
      values[key.value] = unsharded(read_part(folder, pieces, whole));
    }
  }
  return loaded;
}

/// Of whichever format there is.
Manifest index_of(const std::filesystem::path& folder, const LoadCheckpointOptions& options) {
  std::error_code ignored;
  if (!std::filesystem::exists(folder / kManifestName, ignored) &&
      std::filesystem::exists(folder / distributed::kMetadataName, ignored))
    return distributed::read_metadata(folder, options.model_key, options.optimizer_key);
  return read_manifest(folder);
}

/// To the device that the shard group communicates on.
void move_to_group(ShardedTensor& tensor) {
  if (tensor.group) tensor.local = tensor.local.to(tensor.group->device());
}

}  // namespace
}  // namespace checkpoint

void save_checkpoint(const std::filesystem::path& folder, const std::shared_ptr<Communicator>& world,
                     const ShardedStateDict& model, const ShardedOptimizerState& optimizer,
                     const SaveCheckpointOptions& options) {
  using namespace checkpoint;
  if (!world) throw InvalidArgument("save_checkpoint needs the communicator of all ranks");
  const at::NoGradGuard no_grad;
  const auto what = "save_checkpoint: " + folder.string() + " could not be written:";
  const auto rank = world->rank();

  // First all ranks say what they have. Rank 0 says under which generation, too.
  std::vector<HeldPart> parts;
  const auto plans = together(*world, what.c_str(), [&] {
    std::string plan = rank == 0 ? std::to_string(next_generation(folder)) : "";
    plan += '\n';
    parts = parts_of(model, optimizer);
    for (const auto& part : parts) plan += listed(part) + '\n';
    return plan;
  });
  const auto generation = std::stoll(plans.front());
  for (int64_t other = 0; other < rank; ++other) {
    // Names may hold line ends: whole lines are compared, with the lengths in them.
    const auto& plan = plans[static_cast<size_t>(other)];
    std::erase_if(parts, [&](const HeldPart& part) {
      return plan.find('\n' + listed(part) + '\n') != std::string::npos;
    });
  }

  const bool as_distributed = options.format == CheckpointFormat::torch_distributed;
  const auto name =
      as_distributed ? distributed::file_name(generation, rank) : file_name(generation, rank, world->size());
  std::vector<std::string> lines;
  try {
    lines = together(*world, what.c_str(), [&] { return write_parts(folder, name, parts, options.format); });
    together(*world, what.c_str(), [&] {
      if (rank != 0) return std::string();
      const auto text = as_distributed ? distributed::metadata_of(manifest_of(generation, lines))
                                       : manifest_text(generation, lines);
      const std::string index = as_distributed ? distributed::kMetadataName : kManifestName;
      AtomicFile file(folder / index);
      file.write(text.data(), text.size());
      file.commit();
      remove_other_generations(folder, generation, index);
      return std::string();
    });
  } catch (...) {
    // The file stays where the manifest may have counted on it: only rank 0 knows, and it may be gone.
    std::error_code ignored;
    if (lines.empty()) std::filesystem::remove(folder / name, ignored);
    throw;
  }
}

OptimizerState load_checkpoint(const std::filesystem::path& folder,
                               const std::shared_ptr<Communicator>& world, torch::nn::Module& module,
                               const LoadCheckpointOptions& options) {
  using namespace checkpoint;
  if (!world) throw InvalidArgument("load_checkpoint needs the communicator of all ranks");
  const at::NoGradGuard no_grad;
  const auto what = "load_checkpoint: " + folder.string() + " cannot be loaded:";
  const bool flat_units = is_flat(module);
  Loaded loaded;
  const auto generations = together(*world, what.c_str(), [&] {
    const auto manifest = index_of(folder, options);
    const auto own = flat_units ? flat::sharded_layouts(module) : sharded_state_dict(module);
    for (const auto& [name, tensor] : own) {
      if (!flat_units && tensor.local.is_meta())
        throw RuntimeError("'" + name + "' is on the meta device: call fsdp::to_empty first.");
    }
    loaded = read_for(folder, manifest, module, own, options.optimizer_state);
    for (auto& [name, tensor] : loaded.model) move_to_group(tensor);
    for (auto& [name, values] : loaded.optimizer) {
      for (auto& [key, value] : values) move_to_group(value);
    }
    return std::to_string(manifest.generation);
  });
  for (size_t rank = 1; rank < generations.size(); ++rank) {
    if (generations[rank] != generations[0]) {
      throw RuntimeError(what + "\n\trank 0 reads generation " + generations[0] + ", rank " +
                         std::to_string(rank) + " generation " + generations[rank] +
                         ": they do not see the same folder, or it is being written.");
    }
  }
  if (flat_units) {
    auto state = flat::flatten_sharded_optimizer_state(module, loaded.optimizer);
    flat::load_sharded_state_dict(module, loaded.model);
    return state;
  }
  auto state = load_sharded_optimizer_state(module, loaded.optimizer);
  load_sharded_state_dict(module, loaded.model);
  return state;
}

}  // namespace fsdp
