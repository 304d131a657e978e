#include "harness/sdk/cpp/interpreter.hpp"

#include <c10/core/GradMode.h>

#include <algorithm>

#include "harness/sdk/cpp/observer.hpp"
#include "harness/sdk/cpp/verbs.hpp"
#include "harness/sdk/cpp/warning_sink.hpp"

namespace fsdp_cts::sdk {
namespace {

std::string phase_of(const Json& step) {
  const std::string verb = step.at("verb");
  if (verb == "build" || verb == "shard" || verb == "move" || verb == "materialize") return "construction";
  if (verb == "forward" || verb == "loss") return "forward";
  if (verb == "backward") return "backward";
  if (verb == "optimizer" || verb == "step" || verb == "zero_grad" || verb == "clip_grad_norm")
    return "optimizer";
  if (verb == "zero_parameters") return "summon";
  if ((verb == "enter" || verb == "leave") && step.value("scope", "") == "summon") return "summon";
  if (verb.ends_with("state_dict") || verb.ends_with("_checkpoint")) return "state_dict";
  return "other";
}

bool holds(const Json& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

}  // namespace

Interpreter::Interpreter(Operations& operations, Case a_case, Data data, int rank) : operations_(operations) {
  context_.rank = rank;
  context_.world = a_case.world;
  context_.a_case = std::move(a_case);
  context_.data = std::move(data);
  context_.recorder = std::make_shared<Recorder>();
  operations_.attach(&context_);
  context_.trace->on_compute = [this](const std::string& path) { interrupt(path); };

  std::vector<int> open;
  for (int i = 0; i < static_cast<int>(context_.a_case.program.size()); ++i) {
    const std::string verb = step(i).at("verb");
    if ((verb == "observe" && holds(step(i).at("what"), "trace")) || verb == "meanwhile") traced_ = true;
    if (verb == "attempt_begin") open.push_back(i);
    if (verb != "attempt_end") continue;
    if (open.empty())
      throw std::invalid_argument("step " + std::to_string(i) + " ends an attempt that was not begun");
    attempt_begin_of_[i] = open.back();
    open.pop_back();
  }
}

// A layer begins to compute: what waits for it is done now, and an error goes up through the pass.
void Interpreter::interrupt(const std::string& path) {
  const auto due = std::find_if(meanwhile_.begin(), meanwhile_.end(), [&](const Json& step) {
    return step.at("module") == path && step.at("pass") == context_.phase;
  });
  if (due == meanwhile_.end()) return;
  const Json step = std::move(*due);
  meanwhile_.erase(due);
  Model& of = model(step.value("model", "model"));
  if (step.at("do") == "state_dict") {
    operations_.state_dict(of, "full");
  } else {
    operations_.enter(of, {{"scope", "summon"}})();
  }
}

Interpreter::~Interpreter() {
  context_.trace->on_compute = nullptr;  // models may outlive this
  operations_.attach(nullptr);
}

bool Interpreter::will_run(int index) const {
  const Json& ranks = step(index).value("ranks", Json());
  if (ranks.is_array() && std::find(ranks.begin(), ranks.end(), context_.rank) == ranks.end()) return false;
  if (is_well()) return true;
  // The attempt has failed: nothing but its own end is left of it.
  const auto end = attempt_begin_of_.find(index);
  return end != attempt_begin_of_.end() && end->second == attempts_.back().begin;
}

std::optional<Observation> Interpreter::run(int index) {
  if (!will_run(index)) return std::nullopt;
  const Json& current = step(index);
  const std::string verb = current.at("verb");
  context_.step = index;
  context_.phase = phase_of(current);
  // What the observer itself causes is not the program's.
  context_.trace->enter(verb == "observe" ? std::nullopt : std::optional(context_.phase));
  if (verb == "attempt_begin") {
    attempts_.push_back({index, scopes_.size(), nullptr});
    return std::nullopt;
  }
  if (verb == "attempt_end") {
    Observation observation = answer(index);
    observation.entries.push_back(
        {{"what", "attempt"}, {"name", current.at("name")}, {"error", attempts_.back().error}});
    attempts_.pop_back();
    return observation;
  }
  const WarningSink sink(context_);
  const c10::AutoGradMode grad(no_grad_depth_ == 0);
  try {
    if (verb == "observe") {
      const std::shared_ptr<void> observing = operations_.observing();
      Observation observation = answer(index);
      Observer(*this, observation).observe(current);
      return observation;
    }
    Verbs(*this).act(current);
  } catch (...) {
    fail(index, std::current_exception());
  }
  return std::nullopt;
}

Observation Interpreter::answer(int index) const {
  Observation observation;
  observation.step = index;
  observation.label = step(index).value("label", "");
  if (step(index).contains("iteration")) observation.iteration = step(index)["iteration"].get<int>();
  return observation;
}

void Interpreter::fail(int index, std::exception_ptr error) {
  if (attempts_.empty()) std::rethrow_exception(error);
  const ErrorReport report = describe(error);
  Attempt& attempt = attempts_.back();
  attempt.error = {{"type", report.type},
                   {"message", report.message},
                   {"phase", report.phase},
                   {"step", index},
                   {"verb", step(index).at("verb")}};
  // Scopes opened inside end with it, as `with` blocks do; what their ends say is not the story any more.
  while (scopes_.size() > attempt.open_scopes) {
    const std::function<void()> leave = std::move(scopes_.back());
    scopes_.pop_back();
    try {
      leave();
    } catch (...) {
    }
  }
}

ErrorReport Interpreter::describe(std::exception_ptr error) const {
  std::optional<ErrorReport> own = operations_.describe(error);
  if (own) own->message = sendable(own->message);
  ErrorReport report = own ? *std::move(own) : describe_error(error);
  if (report.phase.empty()) report.phase = context_.phase;
  return report;
}

Model& Interpreter::model(const std::string& instance) {
  const auto found = models_.find(instance);
  if (found == models_.end())
    throw std::invalid_argument("model \"" + instance + "\" is used before it is built");
  return found->second;
}

}  // namespace fsdp_cts::sdk
