#include "comm/store_group.hpp"

#include <algorithm>
#include <numeric>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "fsdp/errors.hpp"

namespace fsdp {
namespace {

int64_t index_of(int64_t rank, const std::vector<int64_t>& ranks) {
  const auto own = std::find(ranks.begin(), ranks.end(), rank);
  if (own == ranks.end()) throw InvalidArgument("A group of ranks can only be made by its members.");
  return own - ranks.begin();
}

c10::intrusive_ptr<c10d::Store> make_store(const Rendezvous& rendezvous) {
  c10::intrusive_ptr<c10d::Store> store;
  if (!rendezvous.file_store.empty()) {
    store =
        c10::make_intrusive<c10d::FileStore>(rendezvous.file_store, static_cast<int>(rendezvous.world_size));
  } else if (rendezvous.world_size > 1) {
    c10d::TCPStoreOptions tcp;
    tcp.port = rendezvous.port;
    tcp.isServer = rendezvous.rank == 0;
    tcp.numWorkers = static_cast<size_t>(rendezvous.world_size);
    tcp.timeout = rendezvous.timeout;
    store = c10::make_intrusive<c10d::TCPStore>(rendezvous.host, tcp);
  } else {
    store = c10::make_intrusive<c10d::HashStore>();  // nobody else to meet
  }
  store->setTimeout(rendezvous.timeout);
  return store;
}

}  // namespace

GroupMembers all_members(const Rendezvous& rendezvous) {
  std::vector<int64_t> ranks(static_cast<size_t>(rendezvous.world_size));
  std::iota(ranks.begin(), ranks.end(), int64_t{0});
  return {make_store(rendezvous), rendezvous.rank, std::move(ranks), rendezvous.timeout};
}

StoreGroup::StoreGroup(GroupMembers members)
    : members_(std::move(members)), rank_(index_of(members_.world_rank, members_.ranks)) {}

std::shared_ptr<Communicator> StoreGroup::subgroup(const std::vector<int64_t>& ranks) {
  if (ranks == members_.ranks) return shared_from_this();
  auto& group = subgroups_[ranks];
  if (!group) group = make_subgroup({members_.store, members_.world_rank, ranks, members_.timeout});
  return group;
}

c10::intrusive_ptr<c10d::Store> StoreGroup::members_store() const {
  std::string name = "fsdp";
  for (const auto rank : members_.ranks) name.append("/").append(std::to_string(rank));
  return c10::make_intrusive<c10d::PrefixStore>(name, members_.store);
}

}  // namespace fsdp
