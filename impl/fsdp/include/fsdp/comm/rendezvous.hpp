#pragma once
// Where the ranks of a world meet to make their groups. The same for every backend.
#include <chrono>
#include <cstdint>
#include <string>

namespace fsdp {

/// Several groups may be made from one rendezvous, by all ranks in the same order: a process opens a store
/// once, keeps it until it ends, and counts its meetings there. Threads may make groups of different ranks,
/// stores or timeouts at the same time; of one rendezvous only one after the other, for the order's sake.
struct Rendezvous {
  int64_t rank = 0;
  int64_t world_size = 1;
  /// A path all ranks see, fresh for every group of processes. Empty: a TCP store at host:port, served by
  /// rank 0 until it ends.
  std::string file_store = {};
  std::string host = "127.0.0.1";
  uint16_t port = 0;
  /// The TCP store is served by somebody else, as torchrun's agent does: rank 0 connects like all others.
  bool served_elsewhere = false;
  /// Put before every key. Processes that use a store after others have used it need another one.
  std::string store_prefix = {};
  /// Of the meeting and of every collective after it.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

/// From RANK, WORLD_SIZE and either `file_store` or MASTER_ADDR and MASTER_PORT, and, where torchrun has set
/// them, TORCHELASTIC_USE_AGENT_STORE ("True": served_elsewhere) and TORCHELASTIC_RESTART_COUNT (the prefix
/// "/worker/attempt_N", so that no attempt reads the keys of an earlier one). Throws InvalidArgument naming
/// the variable that is not set, or the variable and its value where that is not a number in its range. No
/// other thread may change the environment meanwhile.
Rendezvous rendezvous_from_environment(const std::string& file_store = {});

}  // namespace fsdp
