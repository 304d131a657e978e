#pragma once
// Gloo, as bundled in LibTorch. Host tensors of any c10d dtype.
#include <chrono>
#include <memory>
#include <string>

#include "fsdp/comm/communicator.hpp"

namespace fsdp {

struct GlooOptions {
  int64_t rank = 0;
  int64_t world_size = 1;
  /// A path all ranks see, fresh for every group of processes. Empty: a TCP store at host:port, served by
  /// rank 0.
  std::string file_store;
  std::string host = "127.0.0.1";
  uint16_t port = 0;
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

/// Blocks until all ranks have come. The reduce-scatter exchanges pieces all-to-all and adds them locally in
/// rank order, each addition rounded in the tensor's dtype: half the bytes of Gloo's own (an all-reduce and a
/// slice), and an order that depends on nothing but the rank.
std::shared_ptr<Communicator> make_gloo_communicator(const GlooOptions& options);

/// From RANK, WORLD_SIZE and either `file_store` or MASTER_ADDR and MASTER_PORT.
GlooOptions gloo_options_from_environment(const std::string& file_store = {});

}  // namespace fsdp
