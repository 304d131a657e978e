#include "fsdp/comm/mesh.hpp"

#include <functional>
#include <numeric>
#include <utility>

#include "base/python_text.hpp"
#include "fsdp/errors.hpp"

namespace fsdp {
namespace {

std::shared_ptr<Communicator>& default_communicator() {
  static std::shared_ptr<Communicator> world;
  return world;
}

}  // namespace

DeviceMesh::DeviceMesh(std::shared_ptr<Communicator> world, std::vector<int64_t> shape,
                       std::vector<std::string> dim_names)
    : world_(std::move(world)), shape_(std::move(shape)), dim_names_(std::move(dim_names)) {
  if (shape_.empty()) shape_ = {world_->size()};
  const auto total = std::accumulate(shape_.begin(), shape_.end(), int64_t{1}, std::multiplies<>());
  if (total != world_->size()) {
    throw InvalidArgument("A mesh of shape " + python_tuple(shape_) + " needs " + std::to_string(total) +
                          " ranks, but the group has " + std::to_string(world_->size()) + ".");
  }
}

DeviceMesh DeviceMesh::from_groups(std::shared_ptr<Communicator> world,
                                   std::vector<std::shared_ptr<Communicator>> groups,
                                   std::vector<std::string> dim_names) {
  std::vector<int64_t> shape;
  for (const auto& group : groups) shape.push_back(group->size());
  DeviceMesh mesh(std::move(world), std::move(shape), std::move(dim_names));
  for (int64_t dim = 0; dim < mesh.ndim() && !groups.empty(); ++dim) {
    const auto& given = groups[static_cast<size_t>(dim)]->ranks();
    if (const auto along = mesh.ranks_along(dim); given != along) {
      throw InvalidArgument("Dimension " + std::to_string(dim) + " of a mesh of shape " +
                            python_tuple(mesh.shape_) + " has the ranks " + python_tuple(along) +
                            " here, but its group has " + python_tuple(given) + ".");
    }
  }
  mesh.groups_ = std::move(groups);
  return mesh;
}

std::string DeviceMesh::str() const {
  return "DeviceMesh(shape=" + python_tuple(shape_) + ", mesh_dim_names=" + python_list(dim_names_) + ")";
}

std::shared_ptr<Communicator> DeviceMesh::group(int64_t dim) const {
  return groups_.empty() ? world_->subgroup(ranks_along(dim)) : groups_.at(static_cast<size_t>(dim));
}

std::vector<int64_t> DeviceMesh::ranks_along(int64_t dim) const {
  int64_t stride = 1;
  for (auto d = ndim() - 1; d > dim; --d) stride *= size(d);
  const auto coordinate = (world_->rank() / stride) % size(dim);
  const auto first = world_->rank() - coordinate * stride;
  std::vector<int64_t> members;
  for (int64_t i = 0; i < size(dim); ++i)
    members.push_back(world_->ranks()[static_cast<size_t>(first + i * stride)]);
  return members;
}

std::shared_ptr<Communicator> DeviceMesh::consecutive_group(int64_t count) const {
  const auto first = world_->rank() / count * count;
  const auto begin = world_->ranks().begin() + first;
  return world_->subgroup({begin, begin + count});
}

void set_default_communicator(std::shared_ptr<Communicator> world) {
  default_communicator() = std::move(world);
}

DeviceMesh default_mesh() {
  if (!default_communicator()) {
    throw InvalidArgument(
        "Default process group has not been initialized, please make sure to call init_process_group.");
  }
  return DeviceMesh(default_communicator());
}

}  // namespace fsdp
