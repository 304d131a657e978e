#include "harness/runner/tests/fault_testee/answers.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "harness/protocol/safetensors.hpp"

namespace fault_testee {
namespace {

using namespace fsdp_cts;

// A piece of a row-major tensor, cut out of the whole.
HostTensor cut(const HostTensor& whole, std::int64_t offset, std::int64_t length) {
  const std::size_t size = dtype_size(whole.dtype);
  HostTensor piece{whole.dtype, {length}, {}};
  const auto begin = whole.bytes.begin() + offset * static_cast<std::int64_t>(size);
  piece.bytes.assign(begin, begin + length * static_cast<std::int64_t>(size));
  return piece;
}

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// FSDP2's rule: chunks of ceil(rows / world) rows, the last ones short or empty.
Range rows_of(std::int64_t rows, int rank, int world) {
  const std::int64_t chunk = (rows + world - 1) / world;
  return {std::min(rows, rank * chunk), std::min(rows, (rank + 1) * chunk)};
}

void put_nan(HostTensor& tensor) {
  if (tensor.dtype != DType::float32 || tensor.bytes.size() < sizeof(float)) return;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(tensor.bytes.data(), &nan, sizeof(nan));
}

Json item(const std::string& name, const HostTensor& whole, int rank, int world, const std::string& lie,
          TensorMap& tensors) {
  const std::int64_t rows = whole.shape.empty() ? 1 : whole.shape.front();
  const std::int64_t row = rows == 0 ? 0 : whole.numel() / rows;
  Range mine = rows_of(rows, rank, world);
  if (lie == "overlapping_shard" && mine.begin > 0) --mine.begin;
  if (lie == "missing_shard") mine.end = mine.begin;
  Json shape = whole.shape;
  if (lie == "wrong_shape") shape.push_back(1);
  Json result = {{"name", name},
                 {"global_shape", shape},
                 {"dtype", dtype_name(lie == "wrong_dtype" ? DType::float64 : whole.dtype)},
                 {"sharded", true},
                 {"requires_grad", true},
                 {"none", false},
                 {"pieces", Json::array()}};
  if (mine.begin < mine.end) {
    HostTensor piece = cut(whole, mine.begin * row, (mine.end - mine.begin) * row);
    if (lie == "nan") put_nan(piece);
    if (lie == "wrong_value") piece.bytes.front() ^= std::byte{1};
    result["pieces"].push_back(
        {{"tensor", name}, {"offset", mine.begin * row}, {"length", (mine.end - mine.begin) * row}});
    if (lie == "wrong_dtype")
      piece = {DType::float64, piece.shape,
               std::vector<std::byte>(static_cast<std::size_t>(piece.numel()) * 8)};
    tensors.emplace(name, std::move(piece));
  }
  return result;
}

bool asked(const Json& observe, const std::string& what) {
  const Json list = observe.value("what", Json::array({"parameters"}));
  return std::find(list.begin(), list.end(), what) != list.end();
}

Json one_collective(int rank, int world) {
  Json group = Json::array();
  for (int each = 0; each < world; ++each) group.push_back(each);
  return {{"op", "reduce_scatter"}, {"phase", "backward"},
          {"dtype", "float32"},     {"reduce_op", "avg"},
          {"in_numel", 64},         {"out_numel", 64 / world},
          {"group", group},         {"unit", "layers." + std::to_string(rank)}};
}

// What is wrong with the tensor file itself.
void spoil(const std::filesystem::path& file, const std::string& lie) {
  if (lie == "missing_file") std::filesystem::remove(file);
  if (lie == "truncated_file") std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  if (lie == "hostile_file")
    std::ofstream(file, std::ios::binary) << std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10);
  if (lie == "pipe_for_file") {
    std::filesystem::remove(file);
    ::mkfifo(file.c_str(), 0600);
  }
}

}  // namespace

Json answer(const Json& the_case, int step, int rank, int world, const std::string& lie) {
  const std::string name = "step" + std::to_string(step) + ".safetensors";
  const std::filesystem::path file = std::filesystem::path(the_case["scratch"].get<std::string>()) / name;
  const Json& verb = the_case["program"][static_cast<std::size_t>(step)];
  Json message = {{"type", "observation"},
                  {"case", the_case["case"]},
                  {"rank", rank},
                  {"step", step},
                  {"label", verb.value("label", Json())},
                  {"iteration", verb.value("iteration", Json())},
                  {"file", name},
                  {"entries", Json::array()}};
  TensorMap tensors;
  const TensorMap data = read_safetensors(the_case["data"].get<std::string>());
  if (asked(verb, "parameters")) {
    for (const auto& [model, description] : the_case["models"].items()) {
      Json entry = {{"what", "parameters"}, {"model", model}, {"items", Json::array()}};
      const std::string prefix = "parameters/" + model + "/";
      for (const auto& [key, whole] : data) {
        if (!key.starts_with(prefix) || key.find('@') != std::string::npos || lie == "empty_answer") continue;
        entry["items"].push_back(item(key.substr(prefix.size()), whole, rank, world, lie, tensors));
      }
      message["entries"].push_back(std::move(entry));
    }
  }
  if (asked(verb, "trace"))
    message["entries"].push_back({{"what", "trace"}, {"events", {one_collective(rank, world)}}});
  write_safetensors(file, tensors);
  spoil(file, lie);
  if (lie == "file_behind_link" || lie == "file_is_link") {
    // A folder of somebody else's, beside the ranks' own: what is in it may neither be read nor removed.
    const std::filesystem::path outside = std::filesystem::temp_directory_path() / "fsdp-cts-precious";
    std::filesystem::create_directories(outside);
    std::filesystem::rename(file, outside / name);
    if (lie == "file_is_link") std::filesystem::create_symlink(outside / name, file);
    if (lie == "file_behind_link") {
      std::filesystem::create_directory_symlink(outside, file.parent_path() / "d");
      message["file"] = "d/" + name;
    }
  }
  if (lie == "file_outside") message["file"] = "../" + name;
  if (lie == "missing_tensor") message["entries"].push_back({{"what", "loss"}, {"tensor", "nowhere"}});
  return message;
}

}  // namespace fault_testee
