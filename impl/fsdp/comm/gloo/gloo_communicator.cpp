#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <cstdlib>
#include <functional>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "comm/local_reduction.hpp"
#include "comm/store_group.hpp"
#include "fsdp/comm/gloo.hpp"
#include "fsdp/errors.hpp"

namespace fsdp {
namespace {

using Transfers = std::vector<c10::intrusive_ptr<c10d::Work>>;

/// Waits for the transfers, then does what is left to do on this rank.
class ExchangeWork : public Work {
 public:
  ExchangeWork(Transfers transfers, std::function<void()> finish)
      : transfers_(std::move(transfers)), finish_(std::move(finish)) {}
  ~ExchangeWork() override {
    // The buffers must outlive the transfers even if nobody asks for the result.
    try {
      drain();
    } catch (const std::exception&) {  // the same failure reaches whoever does wait
    }
  }
  void wait() override {
    drain();
    if (auto finish = std::exchange(finish_, nullptr)) finish();
  }

 private:
  void drain() {
    for (auto& transfer : std::exchange(transfers_, {})) transfer->wait();
  }
  Transfers transfers_;
  std::function<void()> finish_;
};

void refuse_premul_sum(const Reduction& reduction) {
  if (reduction.op == ReduceOp::premul_sum) throw RuntimeError("Cannot use ReduceOp.PREMUL_SUM with Gloo");
}

/// Every collective is a direct exchange of messages between each two ranks: unlike Gloo's own collectives it
/// needs neither a worker thread nor a staging copy, and adding up stays with us, in rank order.
class GlooCommunicator : public StoreGroup, public PartwiseCollectives {
 public:
  explicit GlooCommunicator(GroupMembers members) : StoreGroup(std::move(members)) {
    if (size() == 1) return;  // nobody to talk to
    auto options = c10d::ProcessGroupGloo::Options::create(this->members().timeout);
    const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
    options->devices.push_back(interface ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
                                         : c10d::ProcessGroupGloo::createDefaultDevice());
    options->threads = 1;
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(meeting_store(), static_cast<int>(rank()),
                                                         static_cast<int>(size()), options);
  }

  at::Device device() const override { return at::kCPU; }

  WorkPtr all_gather(at::Tensor out, at::Tensor in, const CallSite&) override {
    return all_gather_parts({{std::move(out), std::move(in)}});
  }

  WorkPtr reduce_scatter(at::Tensor out, at::Tensor in, Reduction reduction, const CallSite&) override {
    refuse_premul_sum(reduction);
    return reduce_scatter_parts({{std::move(in), std::move(out)}}, reduction);
  }

  PartwiseCollectives* partwise() override { return this; }
  WorkPtr all_gather(const std::vector<Part>& parts, const CallSite&) override {
    return all_gather_parts(parts);
  }
  WorkPtr reduce_scatter(const std::vector<Part>& parts, Reduction reduction, const CallSite&) override {
    refuse_premul_sum(reduction);
    return reduce_scatter_parts(parts, reduction);
  }

  // Everybody sums one piece, then everybody gets all pieces. Padded, so that pieces are equal.
  WorkPtr all_reduce(at::Tensor tensor, Reduction reduction, const CallSite&) override {
    refuse_premul_sum(reduction);
    const auto numel = tensor.numel();
    const auto piece = (numel + size() - 1) / size();
    const auto padded = at::zeros({piece * size()}, tensor.options());
    padded.narrow(0, 0, numel).copy_(tensor.view(-1));
    const auto sum = at::empty({piece}, tensor.options());
    std::shared_ptr<Work> scatter = reduce_scatter_parts({{padded, sum}}, reduction);
    const auto tag = next_tag();  // now, as the other ranks do, and not when somebody waits
    return std::make_unique<ExchangeWork>(Transfers{}, [=, this] {
      scatter->wait();
      Transfers transfers;
      all_gather(tag, {padded, sum}, transfers);
      ExchangeWork(std::move(transfers), nullptr).wait();
      tensor.view(-1).copy_(padded.narrow(0, 0, numel));
    });
  }

  WorkPtr broadcast(at::Tensor tensor, int64_t root, const CallSite&) override {
    const auto tag = next_tag();
    Transfers transfers;
    for (int64_t peer = 0; peer < size(); ++peer) {
      if (rank() == root && peer != root) transfers.push_back(send(tensor, peer, tag));
    }
    if (rank() != root) transfers.push_back(receive(tensor, root, tag));
    return std::make_unique<ExchangeWork>(std::move(transfers), nullptr);
  }

 private:
  std::shared_ptr<Communicator> make_subgroup(GroupMembers members) const override {
    return std::make_shared<GlooCommunicator>(std::move(members));
  }

  WorkPtr all_gather_parts(const std::vector<Part>& parts) {
    Transfers transfers;
    for (const auto& part : parts) all_gather(next_tag(), part, transfers);
    return std::make_unique<ExchangeWork>(std::move(transfers), nullptr);
  }

  void all_gather(int tag, const Part& part, Transfers& transfers) {
    const auto numel = part.small.numel();
    const auto block = [&](int64_t r) { return part.large.narrow(0, r * numel, numel); };
    const auto own = block(rank());
    if (own.const_data_ptr() != part.small.const_data_ptr()) own.copy_(part.small);
    exchange(
        tag, [&](int64_t) { return own; }, block, transfers);
  }

  WorkPtr reduce_scatter_parts(const std::vector<Part>& parts, const Reduction& reduction) {
    Transfers transfers;
    std::vector<std::function<void()>> reductions;
    for (const auto& part : parts)
      reductions.push_back(reduce_scatter(next_tag(), part, reduction, transfers));
    return std::make_unique<ExchangeWork>(std::move(transfers), [reductions = std::move(reductions)] {
      for (const auto& reduce : reductions) reduce();
    });
  }

  /// Returns what is left to do once all blocks have come.
  std::function<void()> reduce_scatter(int tag, const Part& part, const Reduction& reduction,
                                       Transfers& transfers) {
    const auto numel = part.small.numel();
    const auto block = [large = part.large, numel](int64_t r) {
      const auto begin = std::min(r * numel, large.numel());
      return large.narrow(0, begin, std::min(numel, large.numel() - begin));
    };
    const auto given = block(rank()).numel();
    const auto received = at::empty({(size() - 1) * given}, part.large.options());
    const auto place = [received, given, own = rank()](int64_t peer) {
      return received.narrow(0, (peer < own ? peer : peer - 1) * given, given);
    };
    exchange(tag, block, place, transfers);
    return [=, this, out = part.small] {
      std::vector<at::Tensor> addends;
      for (int64_t r = 0; r < size(); ++r) addends.push_back(r == rank() ? block(r) : place(r));
      if (given > 0) reduce_in_rank_order(out.narrow(0, 0, given), addends, reduction);
      if (given < numel) out.narrow(0, given, numel - given).zero_();
    };
  }

  /// Receives are posted before sends: a send whose receiver is ready leaves at once.
  template <class From, class Into>
  void exchange(int tag, From from, Into into, Transfers& transfers) {
    for (int64_t step = 1; step < size(); ++step) {
      const auto peer = (rank() + size() - step) % size();
      if (const auto block = into(peer); block.numel() > 0) transfers.push_back(receive(block, peer, tag));
    }
    for (int64_t step = 1; step < size(); ++step) {
      const auto peer = (rank() + step) % size();
      if (const auto block = from(peer); block.numel() > 0) transfers.push_back(send(block, peer, tag));
    }
  }

  c10::intrusive_ptr<c10d::Work> send(const at::Tensor& tensor, int64_t peer, int tag) {
    std::vector<at::Tensor> tensors{tensor};
    return group_->send(tensors, static_cast<int>(peer), tag);
  }
  c10::intrusive_ptr<c10d::Work> receive(const at::Tensor& tensor, int64_t peer, int tag) {
    std::vector<at::Tensor> tensors{tensor};
    return group_->recv(tensors, static_cast<int>(peer), tag);
  }
  int next_tag() { return tag_ = (tag_ + 1) & 0x3fffffff; }

  int tag_ = 0;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

}  // namespace

std::shared_ptr<Communicator> make_gloo_communicator(const Rendezvous& rendezvous) {
  return std::make_shared<GlooCommunicator>(all_members(rendezvous));
}

}  // namespace fsdp
