#include "reference/oracle.hpp"

#include "reference/merge.hpp"
#include "reference/simulation.hpp"

namespace fsdp_cts::reference {

sdk::Identity Oracle::identity() const {
  return Rank().identity();
}

std::optional<std::string> Oracle::unsupported(const sdk::Case&) const {
  return std::nullopt;
}

void Oracle::act(const sdk::Case& a_case, sdk::Outbox& outbox) {
  outbox.progress(-1, "rendezvous");
  Simulation simulation(a_case);
  for (int step = 0; step < static_cast<int>(a_case.program.size()); ++step) {
    if (!simulation.will_run(step)) continue;
    const std::string verb = a_case.program[static_cast<std::size_t>(step)].at("verb");
    outbox.progress(step, verb);
    if (const std::optional<sdk::Observation> answer = merge(simulation.run(step))) {
      outbox.observation(*answer, 0, "oracle-step" + std::to_string(step));
    }
    if (!sdk::use_is_told(verb)) continue;
    for (std::size_t rank = 0; rank < simulation.memory().size(); ++rank) {
      if (const auto& use = simulation.memory()[rank]) {
        outbox.device_use(step, static_cast<int>(rank),
                          {{"begin_bytes", use->begin_bytes}, {"peak_bytes", use->peak_bytes}});
      }
    }
  }
}

}  // namespace fsdp_cts::reference
