#pragma once
// A grid of ranks. One dimension: shard over it. Two: replicate over the first, shard over the second (HSDP).
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/comm/communicator.hpp"

namespace fsdp {

/// Making groups is issuing, in the sense of communicator.hpp: all ranks in the same order, one thread at a
/// time for all meshes of one world. The rest may be called by any thread.
class DeviceMesh {
 public:
  /// Ranks in row-major order. Empty shape: one dimension over the whole world. Throws InvalidArgument unless
  /// the shape's product is the world size. Makes no group yet.
  explicit DeviceMesh(std::shared_ptr<Communicator> world, std::vector<int64_t> shape = {},
                      std::vector<std::string> dim_names = {});

  /// A mesh of groups that are there already, one for each dimension, so that none is made for a dimension: groups[d]
  /// are the ranks that differ from this one in dimension d only, in mesh order. `world`: all ranks of the mesh. Throws
  /// InvalidArgument unless the sizes' product is the world size and the groups are those of a mesh of that shape.
  static DeviceMesh from_groups(std::shared_ptr<Communicator> world,
                                std::vector<std::shared_ptr<Communicator>> groups,
                                std::vector<std::string> dim_names = {});

  int64_t ndim() const { return static_cast<int64_t>(shape_.size()); }
  int64_t size(int64_t dim) const { return shape_.at(static_cast<size_t>(dim)); }
  const std::vector<std::string>& dim_names() const { return dim_names_; }
  at::Device device() const { return world_->device(); }
  std::string str() const;

  /// The ranks that differ from this one in `dim` only. May block until they have called it too.
  std::shared_ptr<Communicator> group(int64_t dim) const;
  /// The `count` consecutive ranks, in mesh order, that this rank belongs to.
  std::shared_ptr<Communicator> consecutive_group(int64_t count) const;

 private:
  std::vector<int64_t> ranks_along(int64_t dim) const;

  std::shared_ptr<Communicator> world_;
  std::vector<std::shared_ptr<Communicator>> groups_;  ///< by dimension; empty: they are made when asked for
  std::vector<int64_t> shape_;
  std::vector<std::string> dim_names_;
};

/// Used where fully_shard gets no mesh: one dimension over this group. Call it while no other thread asks for
/// the default.
void set_default_communicator(std::shared_ptr<Communicator> world);
/// Throws InvalidArgument if no default was set.
DeviceMesh default_mesh();

}  // namespace fsdp
