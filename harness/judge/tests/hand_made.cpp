#include "harness/judge/tests/hand_made.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace fsdp_cts {
namespace {

std::vector<double> ramp(std::size_t count, double first) {
  std::vector<double> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

// [weight [4, 2], bias [4]] starting at `first`, rows split between two ranks.
void add_sharded(Observation& observation, const std::string& what, double first) {
  const int rank = observation.rank;
  Json items = Json::array();
  for (const auto& [name, shape, start] :
       {std::tuple(std::string("weight"), std::vector<std::int64_t>{4, 2}, first),
        std::tuple(std::string("bias"), std::vector<std::int64_t>{4}, first + 8)}) {
    const std::int64_t length = (shape.size() == 2 ? 8 : 4) / 2;
    const std::string key = what + "/" + name;
    observation.tensors[key] =
        make_tensor(DType::float32, {length},
                    ramp(static_cast<std::size_t>(length), start + static_cast<double>(rank * length)));
    items.push_back({{"name", name},
                     {"global_shape", shape},
                     {"dtype", "float32"},
                     {"sharded", true},
                     {"requires_grad", true},
                     {"none", false},
                     {"pieces", {{{"tensor", key}, {"offset", rank * length}, {"length", length}}}}});
  }
  observation.entries.push_back({{"what", what}, {"model", "model"}, {"items", items}});
}

void add_whole(Observation& observation, const std::string& what, const std::string& model, double first) {
  Json items = Json::array();
  for (const auto& [name, shape, start] :
       {std::tuple(std::string("weight"), std::vector<std::int64_t>{4, 2}, first),
        std::tuple(std::string("bias"), std::vector<std::int64_t>{4}, first + 8)}) {
    const std::int64_t length = shape.size() == 2 ? 8 : 4;
    const std::string key = what + "/" + model + "/" + name;
    observation.tensors[key] =
        make_tensor(DType::float32, {length}, ramp(static_cast<std::size_t>(length), start));
    items.push_back({{"name", name},
                     {"global_shape", shape},
                     {"dtype", "float32"},
                     {"sharded", false},
                     {"requires_grad", true},
                     {"none", false},
                     {"pieces", {{{"tensor", key}, {"offset", 0}, {"length", length}}}}});
  }
  observation.entries.push_back({{"what", what}, {"model", model}, {"items", items}});
}

Observation after_backward_of(int rank) {
  Observation observation;
  observation.rank = rank;
  observation.step = HandMade::after_backward;
  observation.entries = Json::array();
  observation.tensors["loss"] = make_tensor(DType::float32, {}, {10.0 + rank});
  observation.entries.push_back({{"what", "loss"}, {"tensor", "loss"}});
  add_sharded(observation, "gradients", 100);
  return observation;
}

Observation after_step_of(int rank) {
  Observation observation;
  observation.rank = rank;
  observation.step = HandMade::after_step;
  observation.entries = Json::array();
  add_sharded(observation, "parameters", 1);
  auto add = [&](Json entry) { observation.entries.push_back(std::move(entry)); };
  add({{"what", "trace"},
       {"events",
        {collective("all_gather", "forward", "bfloat16", nullptr, 6, 12),
         collective("all_gather", "backward", "bfloat16", nullptr, 6, 12),
         collective("reduce_scatter", "backward", "float32", "avg", 12, 6)}}});
  add({{"what", "recorded"}, {"values", {{"input", "bfloat16"}}}});
  add({{"what", "seen_parameters"},
       {"values", {{"body", Json::parse(R"([["weight", [4, 2]], ["bias", [4]]])")}}}});
  add({{"what", "units"},
       {"model", "model"},
       {"units",
        {{{"module", ""},
          {"class", "Linear"},
          {"settings", {{"reshard_after_forward", true}}},
          {"parameters", {"weight", "bias"}}}}}});
  add({{"what", "counters"}, {"model", "model"}, {"values", {{"pre_backward_hooks", 1}}}});
  add({{"what", "training_state"}, {"model", "model"}, {"value", "idle"}});
  add({{"what", "warnings"},
       {"warnings", {{{"category", "UserWarning"}, {"message", "frozen parameters in one unit"}}}}});
  return observation;
}

Observation attempt_of(int rank) {
  Observation observation;
  observation.rank = rank;
  observation.step = HandMade::attempt_end;
  observation.entries = {{{"what", "attempt"},
                          {"name", "bad"},
                          {"error",
                           {{"type", "RuntimeError"},
                            {"message", "mat1 and mat2 must have the same dtype"},
                            {"phase", "forward"},
                            {"step", 10},
                            {"verb", "forward"}}}}};
  return observation;
}

Observation other_of(int rank) {
  Observation observation;
  observation.rank = rank;
  observation.step = HandMade::of_other;
  observation.entries = Json::array();
  add_whole(observation, "parameters", "other", 1);
  return observation;
}

Evidence truth_evidence() {
  Evidence evidence;
  for (int rank = 0; rank < 2; ++rank) {
    evidence.values[{HandMade::after_backward, "loss", "model", "", rank}].tensor =
        make_tensor(DType::float32, {}, {10.0 + rank});
  }
  for (const auto& [step, what, first] :
       {std::tuple(HandMade::after_backward, std::string("gradients"), 100.0),
        std::tuple(HandMade::after_step, std::string("parameters"), 1.0)}) {
    evidence.values[{step, what, "model", "weight", {}}].tensor =
        make_tensor(DType::float32, {4, 2}, ramp(8, first));
    evidence.values[{step, what, "model", "bias", {}}].tensor =
        make_tensor(DType::float32, {4}, ramp(4, first + 8));
  }
  evidence.facts[{HandMade::after_step, "recorded", "model", "", {}}] = {{"values", {{"input", "bfloat16"}}}};
  return evidence;
}

}  // namespace

Json collective(const std::string& op, const std::string& phase, const std::string& dtype, Json reduce_op,
                int in_numel, int out_numel) {
  return {{"op", op},
          {"phase", phase},
          {"dtype", dtype},
          {"reduce_op", std::move(reduce_op)},
          {"in_numel", in_numel},
          {"out_numel", out_numel},
          {"group", {0, 1}},
          {"unit", ""}};
}

HandMade::HandMade() {
  const Json linear{{"type", "Linear"}, {"class", "Linear"}, {"in", 2}, {"out", 4}, {"bias", true}};
  a_case.id = "T/Class/test[world=2]";
  a_case.scenario = a_case.method = "T/Class/test";
  a_case.seed = "T";
  a_case.world = 2;
  a_case.lane = Lane::exact;
  a_case.models = {{"model", linear}, {"other", linear}};
  a_case.plans = {{"model", {{"api", "fully_shard"}, {"units", {{{"modules", {""}}}}}}}};
  a_case.data = Json::object();
  a_case.switches = Json::object();
  a_case.minimum = Json::object();
  const auto observe = [](Json what, const char* label, const char* model) {
    return Json{
        {"verb", "observe"}, {"what", std::move(what)}, {"label", label}, {"model", model}, {"iteration", 0}};
  };
  a_case.program = {{{"verb", "build"}, {"model", "model"}},
                    {{"verb", "shard"}, {"model", "model"}},
                    {{"verb", "optimizer"}, {"model", "model"}},
                    {{"verb", "forward"}, {"model", "model"}, {"iteration", 0}},
                    {{"verb", "loss"}, {"iteration", 0}},
                    {{"verb", "backward"}, {"iteration", 0}},
                    observe({"loss", "gradients"}, "after_backward", "model"),
                    {{"verb", "step"}, {"iteration", 0}},
                    observe({"parameters", "trace", "recorded", "seen_parameters", "units", "counters",
                             "training_state", "warnings"},
                            "after_step", "model"),
                    {{"verb", "attempt_begin"}, {"name", "bad"}},
                    {{"verb", "forward"}, {"model", "model"}},
                    {{"verb", "attempt_end"}, {"name", "bad"}},
                    observe({"parameters"}, "end", "other")};

  run.case_id = a_case.id;
  run.hello = {{"reduction_order", "rank"}};
  for (int rank = 0; rank < 2; ++rank) {
    RankReport report;
    report.rank = rank;
    report.end = RankEnd::done;
    run.ranks.push_back(report);
    for (Observation& observation : std::vector<Observation>{after_backward_of(rank), after_step_of(rank),
                                                             attempt_of(rank), other_of(rank)}) {
      run.observations.push_back(std::move(observation));
    }
  }
  reference.evidence = golden.evidence = truth_evidence();
  reference.reduction_order = "rank";
  golden.reduction_order = "ring";
}

Verdict HandMade::judged(const char* text) {
  const Json expect = Json::parse(text);
  a_case.expect = expect;
  // Every test but those about errors expects the attempt to end as it does.
  const bool about_attempts = std::any_of(expect.begin(), expect.end(), [](const Json& each) {
    return each.contains("error") || each.contains("no_error") || each.contains("nothing");
  });
  if (!about_attempts) a_case.expect.push_back({{"error", {{"attempt", "bad"}, {"ranks", "all"}}}});
  return judge(a_case, run, {reference.truth(), golden.truth(), noise ? &*noise : nullptr});
}

Observation& HandMade::observation(int step, int rank) {
  return *std::find_if(run.observations.begin(), run.observations.end(),
                       [&](const Observation& each) { return each.step == step && each.rank == rank; });
}

Json& HandMade::entry(int step, int rank, const std::string& what) {
  Json& entries = observation(step, rank).entries;
  return *std::find_if(entries.begin(), entries.end(),
                       [&](const Json& each) { return each["what"] == what; });
}

void HandMade::drop_entry(int step, int rank, const std::string& what) {
  Json kept = Json::array();
  for (const Json& each : observation(step, rank).entries) {
    if (each["what"] != what) kept.push_back(each);
  }
  observation(step, rank).entries = kept;
}

HostTensor& HandMade::tensor(int step, int rank, const std::string& name) {
  return observation(step, rank).tensors.at(name);
}

void HandMade::set_truths(const Place& place, const HostTensor& tensor) {
  reference.evidence.values[place].tensor = tensor;
  golden.evidence.values[place].tensor = tensor;
}

void set_element(HostTensor& tensor, std::int64_t index, double value) {
  const HostTensor one = make_tensor(tensor.dtype, {1}, {value});
  std::memcpy(&tensor.bytes[static_cast<std::size_t>(index) * dtype_size(tensor.dtype)], one.bytes.data(),
              one.bytes.size());
}

void expect_pass(HandMade& made, const char* expect) {
  const Verdict verdict = made.judged(expect);
  EXPECT_EQ(verdict.kind, VerdictKind::pass) << expect << "\n" << verdict.code << ": " << verdict.summary;
}

Verdict expect_code(HandMade& made, const char* expect, const std::string& code, VerdictKind kind) {
  const Verdict verdict = made.judged(expect);
  EXPECT_EQ(verdict.code, code) << expect << "\n" << verdict.summary;
  EXPECT_EQ(verdict.kind, kind) << expect << "\n" << verdict.summary;
  return verdict;
}

Evidence widened(const Evidence& native) {
  Evidence result = native;
  for (auto& [place, value] : result.values) {
    std::vector<double> elements;
    for (std::int64_t i = 0; i < value.tensor.numel(); ++i) elements.push_back(value.tensor.element(i));
    value.tensor = make_tensor(DType::float64, value.tensor.shape, elements);
  }
  return result;
}

}  // namespace fsdp_cts
