#pragma once
// Where the ranks of a world meet to make their groups. The same for every backend.
#include <chrono>
#include <cstdint>
#include <string>

namespace fsdp {

struct Rendezvous {
  int64_t rank = 0;
  int64_t world_size = 1;
  /// A path all ranks see, fresh for every group of processes. Empty: a TCP store at host:port, served by
  /// rank 0.
  std::string file_store;
  std::string host = "127.0.0.1";
  uint16_t port = 0;
  /// Of the meeting and of every collective after it.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

/// From RANK, WORLD_SIZE and either `file_store` or MASTER_ADDR and MASTER_PORT. Throws InvalidArgument
/// naming the variable that is not set.
Rendezvous rendezvous_from_environment(const std::string& file_store = {});

}  // namespace fsdp
