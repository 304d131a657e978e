#pragma once
// What backends over c10d have in common: the ranks of a group, and the store through which they find each
// other. Only such backends include this file.
#include <map>
#include <memory>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "fsdp/comm/communicator.hpp"
#include "fsdp/comm/rendezvous.hpp"

namespace fsdp {

struct GroupMembers {
  c10::intrusive_ptr<c10d::Store> store;
  int64_t world_rank;          ///< of this process
  std::vector<int64_t> ranks;  ///< world ranks of the members, in group order
  std::chrono::milliseconds timeout;
};

/// Everybody. Blocks until rank 0 serves the store.
GroupMembers all_members(const Rendezvous& rendezvous);

class StoreGroup : public Communicator, public std::enable_shared_from_this<StoreGroup> {
 public:
  /// Throws InvalidArgument unless this process is a member.
  explicit StoreGroup(GroupMembers members);

  int64_t rank() const override { return rank_; }
  const std::vector<int64_t>& ranks() const override { return members_.ranks; }
  std::shared_ptr<Communicator> subgroup(const std::vector<int64_t>& ranks) override;

 protected:
  /// A group of the backend's own kind.
  virtual std::shared_ptr<Communicator> make_subgroup(GroupMembers members) const = 0;
  const GroupMembers& members() const { return members_; }
  /// The part of the store that nobody uses but the members, and they for this meeting alone: the same ranks
  /// may have met through this store before, and their addresses of then are still in it. Every member calls
  /// it once per group that it makes.
  c10::intrusive_ptr<c10d::Store> meeting_store() const;

 private:
  GroupMembers members_;
  int64_t rank_;
  std::map<std::vector<int64_t>, std::shared_ptr<Communicator>> subgroups_;
};

}  // namespace fsdp
