#include <stdexcept>

#include "impl/mutants/mutant.hpp"

// mutant_ids.inc: FSDP_CTS_MUTANT(id) for every other source of this folder, written by CMake.
namespace fsdp_cts::mutants {

#define FSDP_CTS_MUTANT(id) Mutant id();
#include "mutant_ids.inc"
#undef FSDP_CTS_MUTANT

const std::vector<Mutant>& all_mutants() {
#define FSDP_CTS_MUTANT(id) id(),
  static const std::vector<Mutant> all = {
#include "mutant_ids.inc"
  };
#undef FSDP_CTS_MUTANT
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

Mutant flat_mutant(std::string id, Group group, std::string sentence, std::string verdict, std::string code,
                   std::string difference, std::function<fsdp::flat::Seams()> seams,
                   std::vector<std::string> cases) {
  Mutant mutant{std::move(id),      group,           std::move(sentence),
                std::move(verdict), std::move(code), std::move(difference)};
  mutant.flat_seams = std::move(seams);
  mutant.cases = std::move(cases);
  return mutant;
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
    case Group::flat_parameter:
      return "7 flat parameter";
    case Group::wrapping:
      return "8 wrapping";
  }
  return "";
}

}  // namespace fsdp_cts::mutants
