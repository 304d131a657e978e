#include "flat/streams.hpp"

#include <utility>

namespace fsdp::flat {

FlatStreams::FlatStreams(at::Device device, bool hybrid)
    : pre_unshard(device, "pre_unshard_stream"),
      unshard(device, "unshard_stream"),
      pre_reduce(device, "pre_reduce_stream"),
      post_backward(device, "post_backward_stream") {
  if (hybrid) all_reduce = SideStream(device, "all_reduce_stream");
}

void FlatStreams::gathers_wait_current() const {
  pre_unshard.wait_current();
  unshard.wait_current();
}

void FlatStreams::current_waits_reductions() const {
  post_backward.block_current();
  all_reduce.block_current();
}

void KeptTensors::release() {
  std::exchange(read, {}).block_current();
  tensors.clear();
}

void FreeEvents::wait_for_oldest_at_limit() {
  if (events_.size() < limit) return;
  const auto oldest = std::move(events_.front());
  events_.pop_front();
  oldest.synchronize();
}

}  // namespace fsdp::flat
