#include "flat/execution_order.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>

#include "base/python_text.hpp"
#include "flat/unit.hpp"
#include "fsdp/errors.hpp"

namespace fsdp::flat {

bool ExecutionOrderCheck::wanted() {
  const char* level = std::getenv("TORCH_DISTRIBUTED_DEBUG");
  return level && std::string(level) == "DETAIL";
}

ExecutionOrderCheck::ExecutionOrderCheck(std::vector<FlatState*> units, std::shared_ptr<Communicator> group)
    : units_(std::move(units)), group_(std::move(group)) {}

void ExecutionOrderCheck::record(FlatState& unit, bool first_iteration) {
  const auto index = std::find(units_.begin(), units_.end(), &unit) - units_.begin();
  if (first_iteration) {
    compare_over_ranks(index);
    order_.push_back(index);
    return;
  }
  const bool as_before = position_ < order_.size() && order_[position_] == index;
  ++position_;
  if (as_before || warned_) return;
  warned_ = true;
  TORCH_WARN("Forward order differs from that of the first iteration on rank ", group_->rank(),
             ". Collectives are unchecked and may give incorrect results or hang. It ran ",
             unit.unit().name.empty() ? "the root" : unit.unit().name, " as number ", position_, ".");
}

void ExecutionOrderCheck::compare_over_ranks(int64_t index) {
  const auto options = at::TensorOptions(group_->device()).dtype(at::kInt);
  const auto own = at::full({1}, index, options);
  auto all = at::empty({group_->size()}, options);
  group_->all_gather(all, own, {"", false, Phase::other})->wait();
  all = all.cpu();
  const auto* indices = all.const_data_ptr<int32_t>();
  for (int64_t rank = 1; rank < group_->size(); ++rank) {
    if (indices[rank] == indices[0]) continue;
    const auto names = [&](int64_t which) {
      std::vector<std::string> result;
      const auto& state = *units_[static_cast<size_t>(which)];
      for (const auto& member : state.flat()->shard().members())
        result.push_back(state.unit().name.empty() ? member.name : state.unit().name + "." + member.name);
      return python_list(result);
    };
    throw RuntimeError("Forward order differs across ranks: rank 0 is all-gathering parameters for " +
                       names(indices[0]) + " while rank " + std::to_string(rank) +
                       " is all-gathering parameters for " + names(indices[rank]));
  }
}

}  // namespace fsdp::flat
