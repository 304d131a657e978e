#include <stdexcept>

#include "impl/mutants/mutant.hpp"

#define FSDP_CTS_MUTANTS(X)                                                                                 \
  X(sum_for_mean)                                                                                           \
  X(divides_twice)                                                                                          \
  X(rank_dependent_scale) X(one_unit_never_reduced) X(off_by_one_chunk) X(floor_for_ceil)                   \
      X(shard_order_reversed) X(stale_gather) X(missing_regather) X(wrong_gather_dtype) X(partial_copy_out) \
          X(reshard_after_forward_ignored) X(never_frees) X(extra_gather) X(all_reduce_for_reduce_scatter)  \
              X(per_parameter_collectives) X(no_sync_ignored) X(reduces_in_param_dtype)                     \
                  X(master_weights_lost) X(output_not_cast) X(input_not_cast) X(accumulates_in_param_dtype) \
                      X(rounds_twice) X(per_parameter_copies) X(no_backward_prefetch)                       \
                          X(blocking_collectives)

namespace fsdp_cts::mutants {

#define FSDP_CTS_DECLARE(id) Mutant id();
FSDP_CTS_MUTANTS(FSDP_CTS_DECLARE)
#undef FSDP_CTS_DECLARE

const std::vector<Mutant>& all_mutants() {
#define FSDP_CTS_MAKE(id) id(),
  static const std::vector<Mutant> all = {FSDP_CTS_MUTANTS(FSDP_CTS_MAKE)};
#undef FSDP_CTS_MAKE
  return all;
}

const Mutant& mutant_named(const std::string& id) {
  std::string known;
  for (const Mutant& mutant : all_mutants()) {
    if (mutant.id == id) return mutant;
    known += (known.empty() ? "" : ", ") + mutant.id;
  }
  throw std::invalid_argument("no mutant is called \"" + id + "\"; there are " + known);
}

std::string group_name(Group group) {
  switch (group) {
    case Group::correct_variant:
      return "correct variant";
    case Group::reduction:
      return "1 reduction";
    case Group::sharding:
      return "2 sharding";
    case Group::gather:
      return "3 gather";
    case Group::resharding:
      return "4 resharding and memory";
    case Group::volume_and_order:
      return "5 volume and order";
    case Group::mixed_precision:
      return "6 mixed precision";
  }
  return "";
}

}  // namespace fsdp_cts::mutants
