#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/local_reduction.hpp"
#include "comm/shm/shm_exchange.hpp"
#include "comm/shm/shm_group.hpp"
#include "comm/store_group.hpp"
#include "fsdp/comm/shm.hpp"
#include "fsdp/errors.hpp"

namespace fsdp {
namespace {

class ShmWork : public Work {
 public:
  ShmWork(std::shared_ptr<Communicator> group, std::shared_ptr<ShmExchange> exchange, uint32_t number)
      : group_(std::move(group)), exchange_(std::move(exchange)), number_(number) {}
  ~ShmWork() override {
    // The tensors are the caller's again, and the others' messages used up, even if nobody asks for the
    // result.
    try {
      wait();
    } catch (const std::exception&) {  // the same failure reaches whoever does wait
    }
  }
  void wait() override {
    if (exchange_) exchange_->complete(number_);
  }

 private:
  std::shared_ptr<Communicator> group_;
  std::shared_ptr<ShmExchange> exchange_;  // null: done when issued
  uint32_t number_;
};

size_t room_for(const at::Tensor& tensor) {
  return (tensor.nbytes() + 63) / 64 * 64;
}

void copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);  // no bytes may be at null
}

void write(std::byte* to, const at::Tensor& tensor) {
  copy(to, tensor.const_data_ptr(), tensor.nbytes());
}

void read(const at::Tensor& tensor, const std::byte* from) {
  copy(tensor.mutable_data_ptr(), from, tensor.nbytes());
}

/// Block r of part.large, as far as it is there.
at::Tensor block(const Part& part, int64_t r) {
  const auto numel = part.small.numel();
  const auto begin = std::min(r * numel, part.large.numel());
  return part.large.narrow(0, begin, std::min(numel, part.large.numel() - begin));
}

/// `like`, as it lies in a message. Only to be read.
at::Tensor in_message(const std::byte* message, const at::Tensor& like) {
  return at::from_blob(const_cast<std::byte*>(message), {like.numel()}, like.options());
}

class ShmCommunicator : public StoreGroup, public PartwiseCollectives {
 public:
  explicit ShmCommunicator(GroupMembers members) : StoreGroup(std::move(members)) {
    if (size() > 1)
      exchange_ = std::make_shared<ShmExchange>(*meeting_store(), rank(), ranks(), this->members().timeout);
  }

  at::Device device() const override { return at::kCPU; }

  WorkPtr all_gather(at::Tensor out, at::Tensor in, const CallSite& site) override {
    return all_gather(std::vector<Part>{{std::move(out), std::move(in)}}, site);
  }
  WorkPtr reduce_scatter(at::Tensor out, at::Tensor in, Reduction reduction, const CallSite& site) override {
    return reduce_scatter(std::vector<Part>{{std::move(in), std::move(out)}}, reduction, site);
  }

  PartwiseCollectives* partwise() override { return this; }

  // A message is this rank's blocks, one behind the other.
  WorkPtr all_gather(const std::vector<Part>& parts, const CallSite&) override {
    size_t bytes = 0;
    for (const auto& part : parts) {
      bytes += room_for(part.small);
      const auto own = block(part, rank());
      if (own.const_data_ptr() != part.small.const_data_ptr()) own.copy_(part.small);
    }
    const auto fill = [&](std::byte* message) {
      for (const auto& part : parts) {
        write(message, part.small);
        message += room_for(part.small);
      }
    };
    CollectiveSignature signature(Kind::all_gather, parts);
    return issue(std::move(signature), bytes, fill,
                 [parts, rank = rank(), size = size()](const Messages& messages) {
                   for (int64_t peer = 0; peer < size; ++peer) {
                     if (peer == rank) continue;
                     const auto* message = messages(peer);
                     for (const auto& part : parts) {
                       read(block(part, peer), message);
                       message += room_for(part.small);
                     }
                   }
                 });
  }

  // A message is the whole input. The own block stays where it is: nobody else reads it.
  WorkPtr reduce_scatter(const std::vector<Part>& parts, Reduction reduction, const CallSite&) override {
    refuse_premul_sum(reduction);
    size_t bytes = 0;
    for (const auto& part : parts) bytes += room_for(part.large);
    const auto fill = [&](std::byte* message) {
      for (const auto& part : parts) {
        for (int64_t peer = 0; peer < size(); ++peer)
          if (peer != rank()) write(message + offset(part, peer), block(part, peer));
        message += room_for(part.large);
      }
    };
    CollectiveSignature signature(Kind::reduce_scatter, parts, reduction.op);
    const auto finish = [parts, reduction, rank = rank(), size = size()](const Messages& messages) {
      size_t begin = 0;
      for (const auto& part : parts) {
        const auto own = block(part, rank);
        std::vector<at::Tensor> addends;
        for (int64_t peer = 0; peer < size; ++peer)
          addends.push_back(peer == rank ? own
                                         : in_message(messages(peer) + begin + offset(part, rank), own));
        const auto given = own.numel(), numel = part.small.numel();
        if (given > 0) reduce_in_rank_order(part.small.narrow(0, 0, given), addends, reduction);
        if (given < numel) part.small.narrow(0, given, numel - given).zero_();
        begin += room_for(part.large);
      }
    };
    return issue(std::move(signature), bytes, fill, finish);
  }

  WorkPtr all_reduce(at::Tensor tensor, Reduction reduction, const CallSite&) override {
    refuse_premul_sum(reduction);
    if (!exchange_) return done();
    const auto fill = [&](std::byte* message) { write(message, tensor); };
    CollectiveSignature signature(Kind::all_reduce, Part{tensor, tensor}, reduction.op);
    const auto finish = [tensor, reduction, size = size()](const Messages& messages) {
      std::vector<at::Tensor> addends;
      for (int64_t peer = 0; peer < size; ++peer) addends.push_back(in_message(messages(peer), tensor));
      if (tensor.numel() > 0) reduce_in_rank_order(tensor.view(-1), addends, reduction);
    };
    return issue(std::move(signature), tensor.nbytes(), fill, finish);
  }

  WorkPtr broadcast(at::Tensor tensor, int64_t root, const CallSite&) override {
    const bool sends = rank() == root;
    const auto fill = [&](std::byte* message) {
      if (sends) write(message, tensor);
    };
    CollectiveSignature signature(Kind::broadcast, Part{tensor, tensor}, ReduceOp::sum,
                                  ranks().at(static_cast<size_t>(root)));
    const auto finish = [tensor, root, sends](const Messages& messages) {
      if (!sends) read(tensor, messages(root));
    };
    return issue(std::move(signature), sends ? tensor.nbytes() : 0, fill, finish);
  }

 private:
  using Kind = CollectiveSignature::Kind;
  using Messages = ShmExchange::Messages;

  std::shared_ptr<Communicator> make_subgroup(GroupMembers members) const override {
    return std::make_shared<ShmCommunicator>(std::move(members));
  }

  static void refuse_premul_sum(const Reduction& reduction) {
    if (reduction.op == ReduceOp::premul_sum)
      throw RuntimeError("Cannot use ReduceOp.PREMUL_SUM with shared memory");
  }

  /// Of block r in a message, in bytes.
  static size_t offset(const Part& part, int64_t r) {
    return static_cast<size_t>(std::min(r * part.small.numel(), part.large.numel())) *
           part.large.element_size();
  }

  /// `finish` must not hold the group: the exchange, which the group owns, keeps it.
  WorkPtr issue(CollectiveSignature signature, size_t bytes, const ShmExchange::Fill& fill,
                ShmExchange::Finish finish) {
    if (exchange_)
      return std::make_unique<ShmWork>(
          shared_from_this(), exchange_,
          exchange_->issue(std::move(signature), bytes, fill, std::move(finish)));
    finish(nullptr);  // nobody to hear from
    return done();
  }
  static WorkPtr done() { return std::make_unique<ShmWork>(nullptr, nullptr, 0); }

  std::shared_ptr<ShmExchange> exchange_;  // null in a group of one
};

}  // namespace

std::shared_ptr<Communicator> make_shm_group(GroupMembers members) {
  return std::make_shared<ShmCommunicator>(std::move(members));
}

std::shared_ptr<Communicator> make_shm_communicator(const Rendezvous& rendezvous) {
  return make_shm_group(all_members(rendezvous));
}

}  // namespace fsdp
