// All ranks of one case, step by step side by side in one process.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/sdk/cpp/interpreter.hpp"
#include "reference/flat_unit.hpp"
#include "reference/memory_count.hpp"
#include "reference/perturbation.hpp"
#include "reference/rank.hpp"
#include "reference/reduction.hpp"

namespace fsdp_cts::reference {

class Simulation {
 public:
  // Order and precision are the case's `oracle`.
  explicit Simulation(const sdk::Case& a_case);

  bool will_run(int step) const;  // on any rank
  // Acts the step out on every rank; after a backward, reduces. One answer per rank.
  // Throws sdk::FailedStep for what goes wrong outside an attempt.
  std::vector<std::optional<sdk::Observation>> run(int step);
  // What the last step took on each rank; nothing where a rank had no part in it.
  const std::vector<std::optional<MemoryUse>>& memory() const { return memory_; }

 private:
  std::vector<Unit*> peers(const std::string& instance, std::size_t unit) const;  // on every rank
  void reduce(int step, const std::vector<bool>& acted);
  // `act` on each unit of the first rank, with the same unit of all ranks.
  void for_flat_units(const std::string& instance, void (FlatUnit::*act)(const std::vector<Unit*>& peers));

  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::unique_ptr<sdk::Interpreter>> interpreters_;
  std::vector<std::optional<MemoryUse>> memory_;
  Order order_;
  std::optional<Perturbation> perturbation_;
};

}  // namespace fsdp_cts::reference
