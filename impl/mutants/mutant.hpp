// Faulty implementations, each the C++ FSDP library with one rule replaced at a seam (fsdp/seams.hpp,
// fsdp/flat/seams.hpp, fsdp/wrap/wrap_rule.hpp). The
// suite must convict every one, and acquit the correct variants among them: an implementation may differ in
// how it works, not in what it does.
//
// A new one is a file of its own that defines a function of its id's name, which is the file's, too.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/flat/seams.hpp"
#include "fsdp/seams.hpp"

namespace fsdp_cts::mutants {

enum class Group {
  correct_variant,
  reduction,
  sharding,
  gather,
  resharding,
  volume_and_order,
  mixed_precision,
  flat_parameter,
  wrapping
};
std::string group_name(Group group);

struct Mutant {
  std::string id;
  Group group;
  std::string sentence;    // what it does wrong; for a correct variant, what it does differently
  std::string verdict;     // that its convicted cases must receive; "pass" for a correct variant
  std::string code;        // of these verdicts
  std::string difference;  // the first observable difference that convicts it
  std::function<fsdp::Seams()> seams = [] { return fsdp::Seams{}; };
  std::function<fsdp::flat::Seams()> flat_seams = [] { return fsdp::flat::Seams{}; };
  std::function<void(const std::vector<at::Tensor>&, double)> foreach_mul = nullptr;  // null: LibTorch's
  // Arguments of `fsdp-cts run`: the cases that it is tried by.
  std::vector<std::string> cases = {"seed:F2MP", "--world", "2"};
};

const std::vector<Mutant>& all_mutants();
const Mutant& mutant_named(const std::string& id);  // throws std::invalid_argument listing the known ones

// Seams with one rule replaced: seams_with<&fsdp::Seams::reduce, SumForMean>.
template <auto seam, class Rule>
fsdp::Seams seams_with() {
  fsdp::Seams seams;
  seams.*seam = std::make_shared<Rule>();
  return seams;
}

template <auto seam, class Rule>
fsdp::flat::Seams flat_seams_with() {
  fsdp::flat::Seams seams;
  seams.*seam = std::make_shared<Rule>();
  return seams;
}

// A faulty FSDP1; FSDP2 stays correct.
Mutant flat_mutant(std::string id, Group group, std::string sentence, std::string verdict, std::string code,
                   std::string difference, std::function<fsdp::flat::Seams()> seams,
                   std::vector<std::string> cases);

// Of a collective that is over, or never was.
class Done : public fsdp::Work {
 public:
  void wait() override {}
};

// A group that passes everything on; faults of transport override one collective.
class PassingOn : public fsdp::Communicator {
 public:
  explicit PassingOn(std::shared_ptr<fsdp::Communicator> inner) : inner_(std::move(inner)) {}
  std::int64_t rank() const override { return inner_->rank(); }
  const std::vector<std::int64_t>& ranks() const override { return inner_->ranks(); }
  at::Device device() const override { return inner_->device(); }
  fsdp::WorkPtr all_gather(at::Tensor out, at::Tensor in, const fsdp::CallSite& site) override {
    return inner_->all_gather(std::move(out), std::move(in), site);
  }
  fsdp::WorkPtr reduce_scatter(at::Tensor out, at::Tensor in, fsdp::Reduction reduction,
                               const fsdp::CallSite& site) override {
    return inner_->reduce_scatter(std::move(out), std::move(in), reduction, site);
  }
  fsdp::WorkPtr all_reduce(at::Tensor tensor, fsdp::Reduction reduction,
                           const fsdp::CallSite& site) override {
    return inner_->all_reduce(std::move(tensor), reduction, site);
  }
  fsdp::WorkPtr broadcast(at::Tensor tensor, std::int64_t root, const fsdp::CallSite& site) override {
    return inner_->broadcast(std::move(tensor), root, site);
  }
  std::shared_ptr<fsdp::Communicator> subgroup(const std::vector<std::int64_t>& ranks) override {
    return inner_->subgroup(ranks);
  }

 protected:
  const std::shared_ptr<fsdp::Communicator> inner_;
};

// Of either engine: seams_with_communicator<ExtraGather>, seams_with_communicator<GatherSwapped,
// fsdp::flat::Seams>.
template <class Faulty, class Seams = fsdp::Seams>
Seams seams_with_communicator() {
  Seams seams;
  seams.communicator = [](std::shared_ptr<fsdp::Communicator> inner) {
    return std::make_shared<Faulty>(std::move(inner));
  };
  return seams;
}

}  // namespace fsdp_cts::mutants
