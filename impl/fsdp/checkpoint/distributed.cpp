#include "checkpoint/distributed.hpp"

#include <c10/util/Exception.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "base/python_text.hpp"
#include "checkpoint/pickle.hpp"
#include "fsdp/errors.hpp"

namespace fsdp::checkpoint::distributed {
namespace {

using pickle::Value;
using pickle::Writer;

const char* const kModule = "torch.distributed.checkpoint.metadata";
using Sizes = std::vector<int64_t>;

/// Where a tensor stands in the nested state dict that was saved.
using Path = std::vector<std::string>;

std::string class_in(const char* name) {
  return std::string(kModule) + "." + name;
}

Sizes sizes_in(const Value& size) {  // torch.Size([2, 3])
  if (!size.is_object_of("torch.Size") || size.items.size() != 1)
    throw RuntimeError("a pickle holds something else where a torch.Size must be");
  Sizes sizes;
  for (const auto& each : size.items.front()->as_sequence()) sizes.push_back(each->as_integer());
  return sizes;
}

at::ScalarType dtype_in(const Value& properties) {  // (torch.float32, layout, requires_grad, …)
  const auto& fields = properties.state ? properties.state->as_sequence() : properties.as_sequence();
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort,
                           at::kChar, at::kByte, at::kBool}) {
    if (!fields.empty() && fields.front()->text == python_text(dtype)) return dtype;
  }
  throw RuntimeError("dtype " + (fields.empty() ? "?" : fields.front()->text) +
                     " is none that a checkpoint of this library holds");
}

/// The cut that a box makes; throws if that is on more than one dimension.
ShardLayout layout_of(const Sizes& global_shape, const Sizes& offsets, const Sizes& sizes) {
  if (offsets.size() != global_shape.size() || sizes.size() != global_shape.size())
    throw RuntimeError("a part has another number of dimensions than its tensor");
  std::optional<size_t> cut;
  for (size_t dim = 0; dim < global_shape.size(); ++dim) {
    if (offsets[dim] < 0 || sizes[dim] < 0 || offsets[dim] > global_shape[dim] - sizes[dim])
      throw RuntimeError("a part reaches beyond its tensor");
    if (sizes[dim] == global_shape[dim]) continue;
    if (cut)
      throw RuntimeError("a tensor is cut on more than one dimension, which this library does not read");
    cut = dim;
  }
  const auto dim = cut.value_or(0);
  if (global_shape.empty()) return ShardLayout{{}, 0, 0, 0, 0};
  return ShardLayout{global_shape, static_cast<int64_t>(dim), offsets[dim], sizes[dim], sizes[dim]};
}

struct Stored {
  std::string file;
  int64_t offset = 0, size = 0;
};

// By name and the offsets of the box; without offsets there is one alone.
using Storage = std::map<std::pair<std::string, Sizes>, Stored>;

Storage storage_in(const Value& storage_data) {
  Storage storage;
  for (const auto& [index, info] : storage_data.entries) {
    const auto* offset = index->find_attribute("offset");
    if (!offset) continue;  // no tensor
    if (info->find_attribute("transform_descriptors"))
      throw RuntimeError(
          "its files are compressed or otherwise transformed, which this library does not read");
    storage[{index->attribute("fqn").as_text(), sizes_in(*offset)}] = {
        info->attribute("relative_path").as_text(), info->attribute("offset").as_integer(),
        info->attribute("length").as_integer()};
  }
  return storage;
}

/// Names of what is nested, from the planner's notes: a name that has dots in it looks like nesting otherwise.
std::map<std::string, Path> paths_in(const Value& planner_data) {
  std::map<std::string, Path> paths;
  for (const auto& [name, path] : planner_data.entries) {
    Path words;
    for (const auto& word : path->as_sequence())
      words.push_back(word->kind == Value::Kind::text ? word->text : std::to_string(word->integer));
    paths[name->as_text()] = std::move(words);
  }
  return paths;
}

std::optional<Key> key_of(const Path& path, const std::string& model, const std::string& optimizer) {
  if (path.size() == 2 && path[0] == model) return Key{path[1], ""};
  if (path.size() == 4 && path[0] == optimizer && path[1] == "state") return Key{path[2], path[3]};
  return std::nullopt;
}

/// Without a planner's note: "model.<name>", "optimizer.state.<parameter>.<value>".
Path path_of(const std::string& name, const std::string& model, const std::string& optimizer) {
  const auto state = optimizer + ".state.";
  if (name.starts_with(model + ".")) return {model, name.substr(model.size() + 1)};
  const auto dot = name.rfind('.');
  if (!name.starts_with(state) || dot < state.size()) return {name};
  return {optimizer, "state", name.substr(state.size(), dot - state.size()), name.substr(dot + 1)};
}

void check_file(const std::filesystem::path& file, int64_t end) {
  std::error_code error;
  const auto size = std::filesystem::file_size(file, error);
  if (error) throw RuntimeError(file.string() + " is missing: " + error.message() + ".");
  if (static_cast<int64_t>(size) < end) {
    throw RuntimeError(file.string() + " has " + std::to_string(size) + " bytes, .metadata says " +
                       std::to_string(end) + " or more.");
  }
}

Manifest manifest_in(const Value& metadata, const std::string& model, const std::string& optimizer) {
  if (!metadata.is_object_of(class_in("Metadata"))) throw RuntimeError("it holds a '" + metadata.text + "'");
  const auto storage = storage_in(metadata.attribute("storage_data"));
  const auto paths = paths_in(metadata.attribute("planner_data"));
  Manifest manifest;
  for (const auto& [name, entry] : metadata.attribute("state_dict_metadata").entries) {
    if (!entry->is_object_of(class_in("TensorStorageMetadata"))) continue;
    const auto noted = paths.find(name->as_text());
    const auto key = key_of(noted == paths.end() ? path_of(name->text, model, optimizer) : noted->second,
                            model, optimizer);
    if (!key) continue;
    const auto shape = sizes_in(entry->attribute("size"));
    const auto dtype = dtype_in(entry->attribute("properties"));
    auto& pieces = manifest.tensors[*key];
    for (const auto& chunk : entry->attribute("chunks").as_sequence()) {
      const auto offsets = sizes_in(chunk->attribute("offsets"));
      const auto stored = storage.find({name->text, offsets});
      if (stored == storage.end())
        throw RuntimeError("it does not say where a part of '" + name->text + "' lies");
      const auto& [file, offset, size] = stored->second;
      pieces.push_back({.key = *key,
                        .dtype = dtype,
                        .layout = layout_of(shape, offsets, sizes_in(chunk->attribute("sizes"))),
                        .file = file,
                        .offset = offset,
                        .bytes = size,
                        .checksum = 0,
                        .encoding = Encoding::torch_save});
      auto& end = manifest.files[file];
      end = std::max(end, offset + size);
    }
    if (pieces.empty()) throw RuntimeError("'" + name->text + "' has no parts");
  }
  return manifest;
}

/// `{name: value, …}` as the state of a new object of that class, whose fields `fields` appends.
template <class Fields>
void write_object(Writer& to, const char* class_name, const Fields& fields, const char* module = kModule) {
  to.global(module, class_name).mark().tuple().create().mark();
  fields();
  to.dict().build();
}

void write_size(Writer& to, const Sizes& sizes) {
  to.global("torch", "Size").mark().mark();
  for (const auto each : sizes) to.integer(each);
  to.tuple().tuple().call();
}

Sizes offsets_of(const ShardLayout& layout) {
  Sizes offsets(layout.global_shape.size(), 0);
  if (!offsets.empty()) offsets[static_cast<size_t>(layout.dim)] = layout.start;
  return offsets;
}
Sizes sizes_of(const ShardLayout& layout) {
  auto sizes = layout.global_shape;
  if (!sizes.empty()) sizes[static_cast<size_t>(layout.dim)] = layout.length;
  return sizes;
}

void write_properties(Writer& to, at::ScalarType dtype) {
  const auto name = python_text(dtype);  // "torch.float32"
  to.global(kModule, "TensorProperties").mark().tuple().create().mark();
  to.global("torch", name.substr(name.find('.') + 1));
  to.global("torch.serialization", "_get_layout").mark().text("torch.strided").tuple().call();
  to.boolean(false);
  to.global(kModule, "_MEM_FORMAT_ENCODING").mark().integer(0).tuple().call();  // contiguous
  to.boolean(false);
  to.tuple().build();
}

Path path_of(const Key& key) {
  if (key.value.empty()) return {"model", key.parameter};
  return {"optimizer", "state", key.parameter, key.value};
}
std::string name_of(const Key& key) {
  std::string name;
  for (const auto& word : path_of(key)) name += (name.empty() ? "" : ".") + word;
  return name;
}

}  // namespace

std::string file_name(int64_t generation, int64_t rank) {
  return "__" + std::to_string(rank) + "_" + std::to_string(generation) + ".distcp";
}

int64_t generation_of(const std::string& file_name) {
  long long generation = 0, rank = 0;
  int end = 0;
  if (std::sscanf(file_name.c_str(), "__%lld_%lld.distcp%n", &rank, &generation, &end) != 2) return 0;
  const auto rest = end > 0 ? file_name.substr(static_cast<size_t>(end)) : "?";
  return rest.empty() || rest == ".tmp" ? generation : 0;
}

WrittenTensors write_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors) {
  WrittenTensors result;
  AtomicFile file(path);
  for (const auto& [name, note, tensor] : tensors) {
    const auto bytes = torch::jit::pickle_save(tensor);
    file.write(bytes.data(), bytes.size());
    result.offsets.push_back(result.bytes);
    result.sizes.push_back(static_cast<int64_t>(bytes.size()));
    result.bytes += result.sizes.back();
  }
  file.commit();
  return result;
}

std::string metadata_of(const Manifest& manifest) {
  Writer to;
  write_object(to, "Metadata", [&] {
    to.text("state_dict_metadata").mark();
    for (const auto& [key, pieces] : manifest.tensors) {
      to.text(name_of(key));
      write_object(to, "TensorStorageMetadata", [&] {
        to.text("properties");
        write_properties(to, pieces.front().dtype);
        to.text("size");
        write_size(to, pieces.front().layout.global_shape);
        to.text("chunks").mark();
        for (const auto& piece : pieces) {
          write_object(to, "ChunkStorageMetadata", [&] {
            to.text("offsets");
            write_size(to, offsets_of(piece.layout));
            to.text("sizes");
            write_size(to, sizes_of(piece.layout));
          });
        }
        to.list();
      });
    }
    to.dict();
    to.text("planner_data").mark();
    for (const auto& [key, pieces] : manifest.tensors) {
      to.text(name_of(key)).mark();
      for (const auto& word : path_of(key)) to.text(word);
      to.tuple();
    }
    to.dict();
    to.text("storage_data").mark();
    for (const auto& [key, pieces] : manifest.tensors) {
      for (size_t i = 0; i < pieces.size(); ++i) {
        write_object(to, "MetadataIndex", [&] {
          to.text("fqn").text(name_of(key)).text("offset");
          write_size(to, offsets_of(pieces[i].layout));
          to.text("index").integer(static_cast<int64_t>(i));
        });
        write_object(
            to, "_StorageInfo",
            [&] {
              to.text("relative_path").text(pieces[i].file);
              to.text("offset").integer(pieces[i].offset);
              to.text("length").integer(pieces[i].bytes);
              to.text("transform_descriptors").none();
            },
            "torch.distributed.checkpoint.filesystem");
      }
    }
    to.dict();
    to.text("storage_meta").none();
    to.text("version").text("1.0.0");
  });
  return to.finish();
}

Manifest read_metadata(const std::filesystem::path& folder, const std::string& model_key,
                       const std::string& optimizer_key) {
  const auto path = folder / kMetadataName;
  Manifest manifest;
  try {
    manifest = manifest_in(*pickle::read(read_text(path)), model_key, optimizer_key);
  } catch (const RuntimeError& error) {
    throw RuntimeError(path.string() + " cannot be read: " + error.what() + ".");
  }
  for (const auto& [file, end] : manifest.files) check_file(folder / file, end);
  return manifest;
}

at::Tensor read_tensor(const std::filesystem::path& path, int64_t offset, int64_t size) {
  std::vector<char> bytes(static_cast<size_t>(size));
  read_bytes(path, offset, bytes.data(), bytes.size());
  try {
    const auto value = torch::jit::pickle_load(bytes);
    if (value.isTensor()) return value.toTensor();
  } catch (const c10::Error& error) {
    throw RuntimeError(path.string() + " is damaged at byte " + std::to_string(offset) + ": " +
                       error.what_without_backtrace());
  }
  throw RuntimeError(path.string() + " holds no tensor at byte " + std::to_string(offset) + ".");
}

}  // namespace fsdp::checkpoint::distributed
