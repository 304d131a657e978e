#include <ATen/ThreadLocalState.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <signal.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "comm/collective_signature.hpp"
#include "comm/local_reduction.hpp"
#include "comm/store_group.hpp"
#include "fsdp/comm/gloo.hpp"
#include "fsdp/errors.hpp"

namespace fsdp {
namespace {

using Kind = CollectiveSignature::Kind;
using Transfers = std::vector<c10::intrusive_ptr<c10d::Work>>;

/// A transfer that could not even be started, to a rank that is gone. Whoever waits learns of it, after the transfers
/// with all other ranks have been started: these may be waiting for their part before they look at the one that is gone.
class NotStarted : public c10d::Work {
 public:
  explicit NotStarted(std::exception_ptr reason) : reason_(std::move(reason)) {}
  bool wait(std::chrono::milliseconds) override { std::rethrow_exception(reason_); }

 private:
  std::exception_ptr reason_;
};

class GlooCommunicator;

/// Waits for the transfers, then does what is left to do on this rank.
class ExchangeWork : public Work {
 public:
  using Later = std::future<Transfers>;

  ExchangeWork(std::shared_ptr<GlooCommunicator> group, CollectiveSignature signature, Transfers transfers,
               std::function<void()> finish)
      : group_(std::move(group)),
        signature_(std::move(signature)),
        transfers_(std::move(transfers)),
        finish_(std::move(finish)) {}
  /// Where the last transfers can be started only when others are done, by the group's relay.
  ExchangeWork(std::shared_ptr<GlooCommunicator> group, CollectiveSignature signature, Later later,
               std::function<void()> finish)
      : group_(std::move(group)),
        signature_(std::move(signature)),
        later_(std::move(later)),
        finish_(std::move(finish)) {}
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
  void drain();

  std::shared_ptr<GlooCommunicator> group_;
  CollectiveSignature signature_;
  Transfers transfers_;
  Later later_;
  std::function<void()> finish_;
};

/// A thread that does one thing after another. What a rank's peers wait for must not depend on when this rank
/// waits: the second exchange of an all-reduce is started here, as soon as the first has ended. As these run
/// in order of issue, the same on all ranks, none holds up another.
class Relay {
 public:
  using Task = std::packaged_task<Transfers()>;

  ~Relay() {
    // Nothing is queued: a Work waits for its task, and keeps the group.
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  ExchangeWork::Later run(Task task) {
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
    auto later = task.get_future();
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
    return later;
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ended_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      task = {};  // and the tensors it holds
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool ended_ = false;
  std::thread thread_;
};

/// Gloo writes to a peer that has just died as any program would, by default to end by SIGPIPE. While this is
/// there the thread, and threads that it starts, get an error instead, which Gloo reports.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigemptyset(&sigpipe_);
    sigaddset(&sigpipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  ~WithoutSigpipe() {
    const timespec at_once{};
    if (!was_pending_)
      while (sigtimedwait(&sigpipe_, nullptr, &at_once) < 0 && errno == EINTR) {
      }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

 private:
  sigset_t sigpipe_{}, before_{};
  bool was_pending_ = false;
};

/// Up to here a whole tensor goes to every rank at once, which costs one exchange in place of two.
constexpr size_t kSmallAllReduce = 4096;

/// How long a rank whose collective has failed waits for the others to say what they had issued.
constexpr auto kPatience = std::chrono::milliseconds(300);

void refuse_premul_sum(const Reduction& reduction) {
  if (reduction.op == ReduceOp::premul_sum) throw RuntimeError("Cannot use ReduceOp.PREMUL_SUM with Gloo");
}

/// Every collective is a direct exchange of messages between each two ranks: unlike Gloo's own collectives it
/// needs no staging copy, and a thread only for large all-reduces; and adding up stays with us, in rank
/// order.
///
/// A message's tag has bits of the collective's signature in it. So messages of different collectives never
/// meet: Gloo would take one for the other where sizes agree, and end the process from a thread of its own
/// where they do not. The ranks time out instead, and then ask each other through the store what they issued.
class GlooCommunicator : public StoreGroup, public PartwiseCollectives {
 public:
  explicit GlooCommunicator(GroupMembers members) : StoreGroup(std::move(members)) {
    if (size() == 1) return;     // nobody to talk to
    const WithoutSigpipe guard;  // for the device's thread
    auto options = c10d::ProcessGroupGloo::Options::create(this->members().timeout);
    const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
    options->devices.push_back(interface ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
                                         : c10d::ProcessGroupGloo::createDefaultDevice());
    options->threads = 1;
    store_ = meeting_store();
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store_, static_cast<int>(rank()),
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

  WorkPtr all_reduce(at::Tensor tensor, Reduction reduction, const CallSite&) override {
    refuse_premul_sum(reduction);
    const auto signature = issued({Kind::all_reduce, Part{tensor, tensor}, reduction.op});
    // Between two ranks the whole is no more than the two halves.
    return size() <= 2 || tensor.nbytes() <= kSmallAllReduce
               ? all_reduce_at_once(signature, tensor.view(-1), reduction)
               : all_reduce_in_pieces(signature, tensor.view(-1), reduction);
  }

  WorkPtr broadcast(at::Tensor tensor, int64_t root, const CallSite&) override {
    const auto signature =
        issued({Kind::broadcast, Part{tensor, tensor}, ReduceOp::sum, ranks().at(static_cast<size_t>(root))});
    const auto tag = next_tag(signature);
    Transfers transfers;
    for (int64_t peer = 0; peer < size(); ++peer) {
      if (rank() == root && peer != root) transfers.push_back(send(tensor, peer, tag));
    }
    if (rank() != root) transfers.push_back(receive(tensor, root, tag));
    return work(signature, std::move(transfers), nullptr);
  }

  /// Throws what the first transfer throws that failed. The others go on: a rank that is still on its way here gets its
  /// part, and then learns from the rank that is gone, not from this one's silence.
  void wait_for(Transfers transfers) {
    for (auto transfer = transfers.begin(); transfer != transfers.end(); ++transfer) {
      try {
        (*transfer)->wait();
      } catch (const std::exception&) {
        const std::lock_guard lock(group_mutex_);
        abandoned_.insert(abandoned_.end(), std::next(transfer), transfers.end());
        throw;
      }
    }
  }

  /// Throws RuntimeError for a collective of which `what` went wrong.
  [[noreturn]] void fail(const CollectiveSignature& signature, const std::string& what) {
    const std::lock_guard lock(failure_mutex_);
    if (!has_failed_) {
      has_failed_ = true;
      try {
        difference_ = difference_to_others(signature);
      } catch (const std::exception&) {  // the store may have gone with the rank that served it
      }
    }
    if (!difference_.empty()) throw RuntimeError(difference_ + " Gloo says: " + what);
    throw RuntimeError(signature.text(0) + " (collective " + std::to_string(signature.number()) +
                       " of this group" + of_ranks(ranks()) + ") failed on rank " +
                       std::to_string(members().world_rank) + ": " + what);
  }

 private:
  std::shared_ptr<Communicator> make_subgroup(GroupMembers members) const override {
    return std::make_shared<GlooCommunicator>(std::move(members));
  }

  // Everybody sends the whole to everybody.
  WorkPtr all_reduce_at_once(const CollectiveSignature& signature, const at::Tensor& tensor,
                             const Reduction& reduction) {
    const auto numel = tensor.numel();
    const auto received = at::empty({(size() - 1) * numel}, tensor.options());
    const auto place = [received, numel, own = rank()](int64_t peer) {
      return received.narrow(0, (peer < own ? peer : peer - 1) * numel, numel);
    };
    Transfers transfers;
    exchange(
        next_tag(signature), [&](int64_t) { return tensor; }, place, transfers);
    return work(signature, std::move(transfers), [=, rank = rank(), size = size()] {
      if (numel == 0) return;
      // With more than two addends the first sum would overwrite this rank's own before its turn.
      const auto own = size > 2 ? tensor.clone() : tensor;
      std::vector<at::Tensor> addends;
      for (int64_t peer = 0; peer < size; ++peer) addends.push_back(peer == rank ? own : place(peer));
      reduce_in_rank_order(tensor, addends, reduction);
    });
  }

  // Everybody sums one piece, then everybody gets all pieces. Padded, so that pieces are equal.
  WorkPtr all_reduce_in_pieces(const CollectiveSignature& signature, const at::Tensor& tensor,
                               const Reduction& reduction) {
    const auto numel = tensor.numel();
    const auto piece = (numel + size() - 1) / size();
    const auto padded = at::zeros({piece * size()}, tensor.options());
    padded.narrow(0, 0, numel).copy_(tensor);
    const auto sum = at::empty({piece}, tensor.options());
    Transfers scattering;
    const auto reduce = reduce_scatter(next_tag(signature), {padded, sum}, reduction, scattering);
    const auto tag = next_tag(signature);  // now, as the other ranks do
    auto gathering =
        relay_.run(Relay::Task([this, padded, sum, reduce, tag, scattering = std::move(scattering),
                                state = at::ThreadLocalState()]() mutable {
          const at::ThreadLocalStateGuard guard(state);
          wait_for(std::move(scattering));
          reduce();
          Transfers transfers;
          all_gather(tag, {padded, sum}, transfers);
          return transfers;
        }));
    return std::make_unique<ExchangeWork>(self(), signature, std::move(gathering),
                                          [=] { tensor.copy_(padded.narrow(0, 0, numel)); });
  }

  WorkPtr all_gather_parts(const std::vector<Part>& parts) {
    const auto signature = issued({Kind::all_gather, parts});
    Transfers transfers;
    for (const auto& part : parts) all_gather(next_tag(signature), part, transfers);
    return work(signature, std::move(transfers), nullptr);
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
    const auto signature = issued({Kind::reduce_scatter, parts, reduction.op});
    Transfers transfers;
    std::vector<std::function<void()>> reductions;
    for (const auto& part : parts)
      reductions.push_back(reduce_scatter(next_tag(signature), part, reduction, transfers));
    return work(signature, std::move(transfers), [reductions = std::move(reductions)] {
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
    return [=, rank = rank(), size = size(), out = part.small] {
      std::vector<at::Tensor> addends;
      for (int64_t r = 0; r < size; ++r) addends.push_back(r == rank ? block(r) : place(r));
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

  // The relay sends and receives too, and ProcessGroupGloo counts both.
  c10::intrusive_ptr<c10d::Work> send(const at::Tensor& tensor, int64_t peer, int tag) {
    std::vector<at::Tensor> tensors{tensor};
    return started([&] { return group_->send(tensors, static_cast<int>(peer), tag); });
  }
  c10::intrusive_ptr<c10d::Work> receive(const at::Tensor& tensor, int64_t peer, int tag) {
    std::vector<at::Tensor> tensors{tensor};
    return started([&] { return group_->recv(tensors, static_cast<int>(peer), tag); });
  }
  template <class Start>
  c10::intrusive_ptr<c10d::Work> started(Start start) {
    const std::lock_guard lock(group_mutex_);
    const WithoutSigpipe guard;
    try {
      return start();
    } catch (const std::exception&) {
      return c10::make_intrusive<NotStarted>(std::current_exception());
    }
  }

  CollectiveSignature issued(CollectiveSignature signature) {
    signature.set_number(++collectives_);
    return signature;
  }
  /// 15 bits of a number, 16 of the signature: c10d wants tags of at least 0.
  int next_tag(const CollectiveSignature& signature) {
    messages_ = (messages_ + 1) & 0x7fff;
    return static_cast<int>(messages_ << 16 | signature.digest());
  }

  /// "" if nobody says to have issued something else as this collective.
  std::string difference_to_others(const CollectiveSignature& signature) const {
    std::vector<uint8_t> own(signature.size_in_bytes());
    signature.write(reinterpret_cast<std::byte*>(own.data()));
    const auto key = [](int64_t rank) { return "failed/" + std::to_string(rank); };
    store_->set(key(rank()), own);
    const auto end = std::chrono::steady_clock::now() + kPatience;
    do {
      for (int64_t peer = 0; peer < size(); ++peer) {
        if (peer == rank() || !store_->check({key(peer)})) continue;
        const auto bytes = store_->get(key(peer));
        const CollectiveSignature other(reinterpret_cast<const std::byte*>(bytes.data()));
        if (other.number() == signature.number() && bytes != own)
          return signature.difference(other, ranks()[static_cast<size_t>(peer)], members().world_rank,
                                      ranks());
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    } while (std::chrono::steady_clock::now() < end);
    return {};
  }

  std::shared_ptr<GlooCommunicator> self() {
    return std::static_pointer_cast<GlooCommunicator>(shared_from_this());
  }
  WorkPtr work(const CollectiveSignature& signature, Transfers transfers, std::function<void()> finish) {
    return std::make_unique<ExchangeWork>(self(), signature, std::move(transfers), std::move(finish));
  }

  int64_t collectives_ = 0;
  uint32_t messages_ = 0;
  c10::intrusive_ptr<c10d::Store> store_;
  std::mutex group_mutex_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  Transfers abandoned_;       ///< of collectives that failed; Gloo forgets a transfer that nobody holds
  std::mutex failure_mutex_;  // of what is below
  bool has_failed_ = false;
  std::string difference_;
  Relay relay_;  // last: its thread uses the rest
};

void ExchangeWork::drain() {
  try {
    if (later_.valid()) transfers_ = later_.get();
    group_->wait_for(std::exchange(transfers_, {}));
  } catch (const c10::Error& error) {
    group_->fail(signature_, error.what_without_backtrace());
  } catch (const std::exception& error) {
    group_->fail(signature_, error.what());
  }
}

}  // namespace

std::shared_ptr<Communicator> make_gloo_communicator(const Rendezvous& rendezvous) {
  return std::make_shared<GlooCommunicator>(all_members(rendezvous));
}

}  // namespace fsdp
