#include "fsdp/comm/recording.hpp"

#include <map>
#include <utility>

namespace fsdp {
namespace {

class RecordingCommunicator : public Communicator, public PartwiseCollectives {
 public:
  RecordingCommunicator(std::shared_ptr<Communicator> inner, std::shared_ptr<Trace> trace)
      : inner_(std::move(inner)), trace_(std::move(trace)) {}

  int64_t rank() const override { return inner_->rank(); }
  const std::vector<int64_t>& ranks() const override { return inner_->ranks(); }
  at::Device device() const override { return inner_->device(); }

  WorkPtr all_gather(at::Tensor out, at::Tensor in, const CallSite& site) override {
    note(CollectiveKind::all_gather, {}, in, out, site);
    return inner_->all_gather(std::move(out), std::move(in), site);
  }
  WorkPtr reduce_scatter(at::Tensor out, at::Tensor in, Reduction reduction, const CallSite& site) override {
    note(CollectiveKind::reduce_scatter, reduction, in, out, site);
    return inner_->reduce_scatter(std::move(out), std::move(in), reduction, site);
  }
  WorkPtr all_reduce(at::Tensor tensor, Reduction reduction, const CallSite& site) override {
    note(CollectiveKind::all_reduce, reduction, tensor, tensor, site);
    return inner_->all_reduce(std::move(tensor), reduction, site);
  }
  WorkPtr broadcast(at::Tensor tensor, int64_t root, const CallSite& site) override {
    note(CollectiveKind::broadcast, {}, tensor, tensor, site);
    return inner_->broadcast(std::move(tensor), root, site);
  }
  PartwiseCollectives* partwise() override { return inner_->partwise() ? this : nullptr; }
  WorkPtr all_gather(const std::vector<Part>& parts, const CallSite& site) override {
    note(CollectiveKind::all_gather, {}, parts, site);
    return inner_->partwise()->all_gather(parts, site);
  }
  WorkPtr reduce_scatter(const std::vector<Part>& parts, Reduction reduction, const CallSite& site) override {
    note(CollectiveKind::reduce_scatter, reduction, parts, site);
    return inner_->partwise()->reduce_scatter(parts, reduction, site);
  }
  std::shared_ptr<Communicator> subgroup(const std::vector<int64_t>& ranks) override {
    auto& group = subgroups_[ranks];
    if (!group) group = std::make_shared<RecordingCommunicator>(inner_->subgroup(ranks), trace_);
    return group;
  }

 private:
  void note(CollectiveKind kind, const Reduction& reduction, const at::Tensor& in, const at::Tensor& out,
            const CallSite& site) {
    trace_->append({kind, reduction, in.scalar_type(), in.numel(), out.numel(), inner_->ranks(), site});
  }

  /// As one tensor of all parts: what it contains, and not how it travels.
  void note(CollectiveKind kind, const Reduction& reduction, const std::vector<Part>& parts,
            const CallSite& site) {
    int64_t small = 0;
    for (const auto& part : parts) small += part.small.numel();
    const auto large = size() * small;
    const bool gathers = kind == CollectiveKind::all_gather;
    trace_->append({kind, reduction, parts.front().small.scalar_type(), gathers ? small : large,
                    gathers ? large : small, inner_->ranks(), site});
  }

  std::shared_ptr<Communicator> inner_;
  std::shared_ptr<Trace> trace_;
  std::map<std::vector<int64_t>, std::shared_ptr<Communicator>> subgroups_;
};

}  // namespace

void Trace::append(CollectiveEvent event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
}

std::vector<CollectiveEvent> Trace::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

std::shared_ptr<Communicator> recording(std::shared_ptr<Communicator> inner, std::shared_ptr<Trace> trace) {
  return std::make_shared<RecordingCommunicator>(std::move(inner), std::move(trace));
}

}  // namespace fsdp
