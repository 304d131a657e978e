#include "harness/judge/program_map.hpp"

#include <algorithm>
#include <map>

#include "harness/protocol/pattern.hpp"

namespace fsdp_cts {
namespace {

// Verbs that leave the phase as it was: they look, or only move between blocks.
std::string phase_of(const std::string& verb, const Json& step) {
  static const std::map<std::string, std::string> phases = {
      {"build", "construction"},
      {"materialize", "construction"},
      {"shard", "construction"},
      {"forward", "forward"},
      {"loss", "forward"},
      {"backward", "backward"},
      {"step", "optimizer"},
      {"unscale", "optimizer"},
      {"scaler_step", "optimizer"},
      {"optimizer", "optimizer"},
      {"unshard", "unshard"},
      {"reshard", "reshard"},
      {"state_dict", "state_dict"},
      {"load_state_dict", "state_dict"},
      {"optimizer_state_dict", "state_dict"},
      {"load_optimizer_state_dict", "state_dict"},
      {"save_checkpoint", "state_dict"},
      {"load_checkpoint", "state_dict"},
      {"clip_grad_norm", "optimizer"},
      {"zero_parameters", "summon"},
      {"mutate", "mutate"},
  };
  if (verb == "enter" || verb == "leave") return step.value("scope", "") == "summon" ? "summon" : "";
  auto found = phases.find(verb);
  return found == phases.end() ? "" : found->second;
}

struct ModelState {
  bool unsharded = false;
  int summons = 0;
  std::vector<Cast> casts;
};

void follow(ModelState& state, const std::string& verb, const Json& step) {
  if (verb == "build") state.casts.clear();
  if (verb == "cast") state.casts.push_back({step.value("dtype", ""), step.value("match", "")});
  if (verb == "forward" || verb == "unshard") state.unsharded = true;
  if (verb == "reshard" || verb == "shard" || verb == "state_dict" || verb == "load_state_dict" ||
      verb == "save_checkpoint" || verb == "load_checkpoint")
    state.unsharded = false;
  const bool summon = step.value("scope", "") == "summon";
  if (verb == "enter" && summon) ++state.summons;
  if (verb == "leave" && summon) --state.summons;
}

std::map<int, int> begins_of_attempts(const Json& program) {
  std::map<int, int> begins;
  std::vector<int> open;
  for (int step = 0; step < static_cast<int>(program.size()); ++step) {
    const std::string verb = program[static_cast<std::size_t>(step)].value("verb", "");
    if (verb == "attempt_begin") open.push_back(step);
    if (verb != "attempt_end" || open.empty()) continue;
    begins[step] = open.back();
    open.pop_back();
  }
  return begins;
}

}  // namespace

ProgramMap::ProgramMap(const Json& program, const FailedAttempts& failed)
    : begin_of_attempt_(begins_of_attempts(program)) {
  std::map<std::string, ModelState> models;
  std::string phase = "construction";
  std::vector<std::string> attempts;
  std::map<std::string, std::string> parts;
  auto acted_out = [&](int step) {
    auto end = failed.lower_bound(step);
    return end == failed.end() || step <= failed_step(end->first, end->second) || step == end->first;
  };
  for (const Json& step : program) {
    StepFacts facts;
    facts.verb = step.value("verb", "");
    if (auto it = step.find("iteration"); it != step.end() && it->is_number_integer())
      facts.iteration = it->get<int>();
    if (auto it = step.find("label"); it != step.end() && it->is_string()) facts.label = *it;
    facts.model =
        step.contains("model") && step["model"].is_string() ? step["model"].get<std::string>() : "model";
    if (facts.verb == "observe") facts.what = strings_of(step.value("what", Json::array()));
    if (auto it = step.find("ranks"); it != step.end() && it->is_array())
      facts.ranks = it->get<std::vector<int>>();

    if (facts.verb == "end_process") {
      for (int rank : facts.ranks) ended_.emplace(rank, size());
    }
    if (acted_out(size())) {
      if (std::string now = phase_of(facts.verb, step); !now.empty()) phase = now;
      follow(models[facts.model], facts.verb, step);
      if (facts.verb == "state_dict" || facts.verb == "optimizer_state_dict")
        parts["state_dict:" + step.value("as", "")] = step.value("module", "");
      // A backward belongs to whichever models took part in its loss: it settles all of them.
      if (facts.verb == "backward") {
        for (auto& [name, state] : models) state.unsharded = false;
      }
    }
    facts.phase = phase;
    facts.casts = models[facts.model].casts;
    facts.parts = parts;
    facts.settled = !models[facts.model].unsharded && models[facts.model].summons == 0;

    if (facts.verb == "attempt_begin") attempts.push_back(step.value("name", ""));
    facts.attempt = attempts.empty() ? "" : attempts.back();
    if (facts.verb == "attempt_end" && !attempts.empty()) attempts.pop_back();
    steps_.push_back(std::move(facts));
  }
}

DType dtype_after(const std::vector<Cast>& casts, const std::string& parameter, DType dtype) {
  for (const Cast& cast : casts) {
    if (is_floating(dtype) && (cast.match.empty() || Pattern(cast.match).found_in(parameter)))
      dtype = dtype_from_name(cast.dtype);
  }
  return dtype;
}

std::vector<Cast> ProgramMap::casts_before_sharding(const std::string& model) const {
  const auto shard = std::find_if(steps_.rbegin(), steps_.rend(), [&](const StepFacts& step) {
    return step.verb == "shard" && step.model == model;
  });
  return shard == steps_.rend() ? std::vector<Cast>() : shard->casts;
}

const StepFacts& ProgramMap::at(int step) const {
  return steps_.at(static_cast<std::size_t>(step));
}

int ProgramMap::failed_step(int end, int claimed) const {
  const auto begin = begin_of_attempt_.find(end);
  return begin == begin_of_attempt_.end() ? end : std::max(claimed, begin->second);
}

bool ProgramMap::takes_part(int step, int rank) const {
  if (const auto end = ended_.find(rank); end != ended_.end() && step > end->second) return false;
  const auto& ranks = at(step).ranks;
  return ranks.empty() || std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

std::vector<std::string> strings_of(const Json& value) {
  if (value.is_string()) return {value.get<std::string>()};
  return value.get<std::vector<std::string>>();
}

}  // namespace fsdp_cts
