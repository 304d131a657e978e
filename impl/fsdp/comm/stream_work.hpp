#pragma once
// What all backends of accelerators answer with.
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "base/streams.hpp"
#include "fsdp/comm/communicator.hpp"

namespace fsdp {

/// A collective that was put on the stream that was current when this was made.
class StreamWork : public Work {
 public:
  StreamWork(std::shared_ptr<Communicator> group, std::vector<at::Tensor> tensors)
      : group_(std::move(group)),
        tensors_(std::move(tensors)),
        done_(StreamEvent::record(group_->device())) {}
  ~StreamWork() override {
    // The buffers go back to the current stream's memory: it must not run ahead of the collective.
    try {
      done_.block_current();
    } catch (const std::exception&) {  // the same failure reaches whoever waits for the stream
    }
  }
  void wait() override { done_.block_current(); }

 private:
  std::shared_ptr<Communicator> group_;
  std::vector<at::Tensor> tensors_;
  StreamEvent done_;
};

}  // namespace fsdp
