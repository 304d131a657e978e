// From the units of an `fsdp` or `composable` plan (LANGUAGE.md §5) to the library's options, and back to
// settings that can be observed.
#pragma once

#include <memory>

#include "fsdp/flat/fully_sharded_data_parallel.hpp"
#include "fsdp/wrap/policies.hpp"
#include "impl/testee/library_operations.hpp"

namespace fsdp_cts::testee {

// The plan of one model.
class FlatPlan {
 public:
  FlatPlan(const sdk::Model& model, std::shared_ptr<fsdp::Communicator> world, const sdk::Data& data)
      : model_(model), world_(std::move(world)), data_(data) {}

  // Unit by unit. Throws std::invalid_argument for a module, parameter or policy that is not there.
  void apply() const;

 private:
  using Options = fsdp::flat::FSDPOptions;
  // By the front door that the plan and the unit name. Absent keys keep the library's defaults.
  void apply(const sdk::Json& unit) const;
  // Changes what a key is there for.
  void set(const sdk::Json& keys, Options& options) const;
  // Once all keys are known: hybrid strategies take the plan's mesh in place of a group.
  void settle(Options& options) const;
  std::shared_ptr<fsdp::Communicator> group_of(const sdk::Json& process_group) const;
  std::shared_ptr<const fsdp::flat::WrapPolicy> policy_of(const sdk::Json& auto_wrap) const;
  fsdp::WrapFunction function_of(const sdk::Json& auto_wrap) const;
  fsdp::flat::CustomPolicy custom_policy_of(const sdk::Json& rules) const;

  const sdk::Model& model_;
  std::shared_ptr<fsdp::Communicator> world_;
  const sdk::Data& data_;
};

sdk::Json settings_of(const fsdp::flat::FullyShardedDataParallel& unit);

}  // namespace fsdp_cts::testee
