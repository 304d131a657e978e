#include "impl/mutants/mutant.hpp"

namespace fsdp_cts::mutants {
namespace {

// As many ranks of `whole`, this one among them, at equal distances: of four 0 and 2, 1 and 3.
std::shared_ptr<fsdp::Communicator> strided(fsdp::Communicator& whole, std::int64_t members) {
  const std::int64_t stride = whole.size() / members;
  std::vector<std::int64_t> ranks;
  for (std::int64_t i = 0; i < members; ++i)
    ranks.push_back(whole.ranks().at(static_cast<std::size_t>(whole.rank() % stride + i * stride)));
  return whole.subgroup(ranks);
}

}  // namespace

Mutant strided_group() {
  Mutant mutant{"strided_group",
                Group::resharding,
                "With an integer reshard_after_forward a unit is kept by groups of ranks that do not stand "
                "next to each other.",
                "fail",
                "collective_group",
                "the gathers of backward are over ranks 0,2 and 1,3"};
  mutant.seams = [] {
    fsdp::Seams seams;
    // The first group that a unit asks for is that of all its shards.
    seams.communicator =
        [whole = std::shared_ptr<fsdp::Communicator>()](std::shared_ptr<fsdp::Communicator> asked) mutable {
          if (!whole || asked->size() == whole->size()) return whole = std::move(asked);
          return strided(*whole, asked->size());
        };
    return seams;
  };
  mutant.cases = {"F2MP/*reshard_after_forward=2*", "--world", "4"};
  return mutant;
}

}  // namespace fsdp_cts::mutants
