#include "comm/store_group.hpp"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <tuple>
#include <type_traits>
#include <utility>

#include "fsdp/errors.hpp"

namespace fsdp {
namespace {

int64_t index_of(int64_t rank, const std::vector<int64_t>& ranks) {
  const auto own = std::find(ranks.begin(), ranks.end(), rank);
  if (own == ranks.end()) throw InvalidArgument("A group of ranks can only be made by its members.");
  return own - ranks.begin();
}

c10::intrusive_ptr<c10d::Store> open_store(const Rendezvous& rendezvous) {
  c10::intrusive_ptr<c10d::Store> store;
  if (!rendezvous.file_store.empty()) {
    store =
        c10::make_intrusive<c10d::FileStore>(rendezvous.file_store, static_cast<int>(rendezvous.world_size));
  } else {
    c10d::TCPStoreOptions tcp;
    tcp.port = rendezvous.port;
    tcp.isServer = rendezvous.rank == 0 && !rendezvous.served_elsewhere;
    tcp.numWorkers = static_cast<size_t>(rendezvous.world_size);
    tcp.timeout = rendezvous.timeout;
    tcp.multiTenant = true;  // the same port with another timeout, say
    store = c10::make_intrusive<c10d::TCPStore>(rendezvous.host, tcp);
  }
  store->setTimeout(rendezvous.timeout);
  return store;
}

/// A process opens a store once and keeps it. Were it closed after each meeting, the server would take with
/// it, and the last user of a file remove, what faster ranks have already written for the next meeting.
c10::intrusive_ptr<c10d::Store> store_of(const Rendezvous& rendezvous) {
  if (rendezvous.world_size == 1 && rendezvous.file_store.empty())
    return c10::make_intrusive<c10d::HashStore>();  // nobody else to meet
  // A forked child must not talk through its parent's connection.
  const auto key =
      std::make_tuple(getpid(), rendezvous.file_store, rendezvous.host, rendezvous.port, rendezvous.rank,
                      rendezvous.world_size, rendezvous.served_elsewhere, rendezvous.timeout);
  static std::mutex mutex;
  static std::map<std::remove_const_t<decltype(key)>, c10::intrusive_ptr<c10d::Store>> stores;
  {
    const std::lock_guard lock(mutex);
    if (const auto known = stores.find(key); known != stores.end()) return known->second;
  }
  const auto store = open_store(rendezvous);  // blocks, perhaps for another thread's rank
  const std::lock_guard lock(mutex);
  return stores.emplace(key, store).first->second;
}

c10::intrusive_ptr<c10d::Store> make_store(const Rendezvous& rendezvous) {
  auto store = store_of(rendezvous);
  if (rendezvous.store_prefix.empty()) return store;
  return c10::make_intrusive<c10d::PrefixStore>(rendezvous.store_prefix, std::move(store));
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

c10::intrusive_ptr<c10d::Store> StoreGroup::meeting_store() const {
  std::string name = "fsdp";
  for (const auto rank : members_.ranks) name.append("/").append(std::to_string(rank));
  // The n-th arrival of each member belongs to the n-th meeting.
  const auto meeting = members_.store->add(name + "/arrivals_of_" + std::to_string(rank_), 1);
  return c10::make_intrusive<c10d::PrefixStore>(name + "/meeting_" + std::to_string(meeting), members_.store);
}

}  // namespace fsdp
