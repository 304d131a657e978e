#include "reference/simulation.hpp"

#include <c10/core/GradMode.h>

#include "harness/protocol/safetensors.hpp"
#include "harness/sdk/cpp/serve.hpp"
#include "reference/flat_unit.hpp"

namespace fsdp_cts::reference {
namespace {

std::string oracle_setting(const sdk::Case& a_case, const char* key, const char* fallback) {
  return a_case.oracle.is_object() ? a_case.oracle.value(key, fallback) : fallback;
}

}  // namespace

Simulation::Simulation(const sdk::Case& a_case)
    : order_(order_from_name(oracle_setting(a_case, "reduction_order", "rank"))) {
  const std::string precision = oracle_setting(a_case, "precision", "native");
  const bool widen = precision == "float64";
  if (precision.rfind("perturbed:", 0) == 0) perturbation_.emplace(std::stoull(precision.substr(10)));
  const auto tensors = std::make_shared<const TensorMap>(read_safetensors(a_case.data));
  for (int rank = 0; rank < a_case.world; ++rank) {
    ranks_.push_back(std::make_unique<Rank>());
    interpreters_.push_back(
        std::make_unique<sdk::Interpreter>(*ranks_.back(), a_case, sdk::Data(tensors, rank, widen), rank));
  }
}

bool Simulation::will_run(int step) const {
  return std::any_of(interpreters_.begin(), interpreters_.end(),
                     [step](const auto& i) { return i->will_run(step); });
}

std::vector<std::optional<sdk::Observation>> Simulation::run(int step) {
  std::vector<std::optional<sdk::Observation>> answers(ranks_.size());
  std::vector<bool> acted(ranks_.size());
  memory_.assign(ranks_.size(), std::nullopt);
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    acted[r] = interpreters_[r]->will_run(step);
    if (perturbation_) perturbation_->begin(step);
    const MemoryOfStep memory;
    try {
      answers[r] = interpreters_[r]->run(step);
    } catch (...) {
      sdk::ErrorReport error = interpreters_[r]->describe(std::current_exception());
      error.message = "simulated rank " + std::to_string(r) + ": " + error.message;
      throw sdk::FailedStep{step, std::move(error)};
    }
    if (acted[r]) memory_[r] = memory.use();
  }
  const sdk::Json& done = interpreters_.front()->context().a_case.program.at(static_cast<std::size_t>(step));
  if (done.at("verb") == "backward") reduce(step, acted);
  if (done.at("verb") == "shard")
    for_flat_units(done.value("model", "model"), &FlatUnit::take_first_ranks_states);
  if (done.at("verb") == "leave" && done.at("scope") == "summon" && done.value("writeback", true))
    for_flat_units(done.value("model", "model"), &FlatUnit::exchange_shards);
  return answers;
}

std::vector<Unit*> Simulation::peers(const std::string& instance, std::size_t unit) const {
  std::vector<Unit*> peers;
  for (const auto& rank : ranks_) peers.push_back(rank->sharded().at(instance).units.at(unit).get());
  return peers;
}

void Simulation::for_flat_units(const std::string& instance,
                                void (FlatUnit::*act)(const std::vector<Unit*>& peers)) {
  const auto sharded = ranks_.front()->sharded().find(instance);
  if (sharded == ranks_.front()->sharded().end()) return;
  for (std::size_t u = 0; u < sharded->second.units.size(); ++u) {
    const std::vector<Unit*> units = peers(instance, u);
    if (auto* flat = dynamic_cast<FlatUnit*>(units.front())) (flat->*act)(units);
  }
}

// A rank whose backward failed sends nothing, so nobody gets a sum.
void Simulation::reduce(int step, const std::vector<bool>& acted) {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (!acted[r] || !interpreters_[r]->is_well()) return;
  }
  c10::AutoGradMode no_grad(false);
  for (auto& [instance, sharded] : ranks_.front()->sharded()) {
    for (std::size_t u = 0; u < sharded.units.size(); ++u) {
      const std::vector<Unit*> units = peers(instance, u);
      for (Unit* unit : units) unit->end_backward();
      try {
        units.front()->reduce(units, order_);
      } catch (...) {
        for (const auto& interpreter : interpreters_) interpreter->fail(step, std::current_exception());
        return;
      }
    }
  }
}

}  // namespace fsdp_cts::reference
