// Expectations of what happens besides values: errors, warnings, collectives, devices, layouts, units,
// counters. Each with a hand-made answer that passes and at least one that does not.
#include <gtest/gtest.h>

#include <cmath>

#include "harness/judge/program_map.hpp"
#include "harness/judge/tests/hand_made.hpp"

namespace fsdp_cts {
namespace {

TEST(Error, TypeMessagePhaseRanks) {
  HandMade made;
  expect_pass(
      made,
      R"([{"error": {"attempt": "bad", "type": "RuntimeError", "message": "mat1 and mat2 must", "phase": "forward", "ranks": "all"}}])");
  expect_code(made, R"([{"error": {"attempt": "bad", "type": "ValueError"}}])", "error_type");
  expect_code(made, R"([{"error": {"attempt": "bad", "message": "^other"}}])", "error_message");
  expect_code(made, R"([{"error": {"attempt": "bad", "phase": "backward"}}])", "error_phase");
  EXPECT_EQ(expect_code(made, R"([{"error": {"attempt": "bad", "ranks": [0]}}])", "unexpected_error")
                .divergence["rank"],
            1);
  made.entry(HandMade::attempt_end, 1, "attempt")["error"] = nullptr;
  EXPECT_EQ(
      expect_code(made, R"([{"error": {"attempt": "bad", "ranks": "all"}}])", "no_error").divergence["rank"],
      1);
}

TEST(Error, AMessageMayBeLong) {
  HandMade made;
  for (int rank = 0; rank < 2; ++rank)
    made.entry(HandMade::attempt_end, rank, "attempt")["error"]["message"] =
        std::string(1 << 20, 'a') + " Float";
  expect_pass(made, R"([{"error": {"attempt": "bad", "message": "a.*Float"}}])");
  const Verdict verdict =
      expect_code(made, R"([{"error": {"attempt": "bad", "message": "a.*Half"}}])", "error_message");
  EXPECT_LE(verdict.summary.size(), 2100U);
}

TEST(NoError, FailsOnAnError) {
  HandMade made;
  expect_code(made, R"([{"no_error": {"attempt": "bad"}}])", "unexpected_error");
  for (int rank = 0; rank < 2; ++rank) made.entry(HandMade::attempt_end, rank, "attempt")["error"] = nullptr;
  expect_pass(made, R"([{"no_error": {"attempt": "bad"}}])");
}

TEST(Warning, OnEveryRank) {
  HandMade made;
  expect_pass(made, R"([{"warning": {"message": "frozen", "category": "UserWarning", "ranks": "all"}}])");
  expect_code(made, R"([{"warning": {"message": "frozen", "category": "FutureWarning"}}])",
              "warning_missing");
  made.entry(HandMade::after_step, 1, "warnings")["warnings"] = Json::array();
  EXPECT_EQ(
      expect_code(made, R"([{"warning": {"message": "frozen"}}])", "warning_missing").divergence["rank"], 1);
}

TEST(NoWarning, FailsOnAMatch) {
  HandMade made;
  expect_pass(made, R"([{"no_warning": {"message": "deprecated"}}])");
  expect_code(made, R"([{"no_warning": {"message": "frozen"}}])", "unexpected_warning");
}

TEST(Collectives, CountAndEveryProperty) {
  HandMade made;
  expect_pass(
      made,
      R"([{"collectives": {"op": "all_gather", "phase": "forward", "group_size": 2, "count": 1, "dtype": "bfloat16", "in_numel": 6, "out_numel": 12}}])");
  expect_pass(
      made,
      R"([{"collectives": {"count": 3}}, {"collectives": {"op": "reduce_scatter", "at_least": 1, "reduce_op": "avg"}}])");
  const Verdict count =
      expect_code(made, R"([{"collectives": {"op": "all_gather", "count": 1}}])", "collective_count");
  EXPECT_EQ(count.divergence["actual"], 2);
  EXPECT_EQ(count.divergence["expected"], 1);
  EXPECT_EQ(
      expect_code(made, R"([{"collectives": {"op": "reduce_scatter", "count": 1, "dtype": "bfloat16"}}])",
                  "collective_dtype")
          .divergence["actual"],
      "float32");
  expect_code(made, R"([{"collectives": {"op": "reduce_scatter", "count": 1, "reduce_op": "sum"}}])",
              "collective_reduce_op");
  expect_code(made, R"([{"collectives": {"op": "reduce_scatter", "count": 1, "out_numel": 7}}])",
              "collective_out_numel");
  expect_code(made, R"([{"collectives": {"op": "all_reduce"}}])", "collective_count");
}

TEST(Collectives, OverTheRanksThatAreDue) {
  HandMade made;
  expect_pass(made, R"([{"collectives": {"count": 3, "groups": "world"}}])");
  expect_pass(made, R"([{"collectives": {"count": 3, "groups": [[0, 1], [2, 3]]}}])");
  EXPECT_EQ(expect_code(made, R"([{"collectives": {"count": 3, "groups": "self"}}])", "collective_group")
                .divergence["expected"],
            Json({0}));
  expect_code(made, R"([{"collectives": {"count": 3, "groups": [[0, 2], [1, 3]]}}])", "collective_group");
}

TEST(CollectiveBytes, ByFormula) {
  HandMade made;
  // Two gathers of 12 bfloat16 and one reduction of 12 float32, half of each sent: 12 + 12 + 24.
  expect_pass(
      made,
      R"([{"collective_bytes": {"total": 48}}, {"collective_bytes": {"op": "all_gather", "total": 24}}])");
  EXPECT_EQ(
      expect_code(made, R"([{"collective_bytes": {"total": 47}}])", "collective_bytes").divergence["actual"],
      48.0);
}

TEST(Order, OfTheFirstOfEach) {
  HandMade made;
  expect_pass(
      made,
      R"([{"order": {"first": {"op": "all_gather", "unit": ""}, "then": {"op": "reduce_scatter", "unit": ""}}}])");
  expect_pass(
      made,
      R"([{"order": {"phase": "backward", "first": {"op": "all_gather", "unit": ""}, "then": {"op": "reduce_scatter", "unit": ""}}}])");
  expect_code(
      made,
      R"([{"order": {"first": {"op": "reduce_scatter", "unit": ""}, "then": {"op": "all_gather", "unit": ""}}}])",
      "collective_order");
  expect_code(
      made,
      R"([{"order": {"first": {"op": "all_gather", "unit": "0"}, "then": {"op": "reduce_scatter", "unit": ""}}}])",
      "collective_order");
}

TEST(Order, OfACollectiveAndAComputation) {
  HandMade made;
  for (const int rank : {0, 1}) {
    Json& events = made.entry(HandMade::after_step, rank, "trace")["events"];
    events.insert(events.begin() + 2, Json{{"op", "compute"}, {"phase", "backward"}, {"unit", "0"}});
  }
  expect_pass(
      made,
      R"([{"order": {"phase": "backward", "first": {"op": "all_gather", "unit": ""}, "then": {"op": "compute", "unit": "0"}}},
          {"collectives": {"count": 3}}])");
  expect_code(
      made,
      R"([{"order": {"phase": "backward", "first": {"op": "compute", "unit": "0"}, "then": {"op": "all_gather", "unit": ""}}}])",
      "collective_order");
}

TEST(Order, UnknownWhereTheTesteeNamesNoUnit) {
  HandMade made;
  for (const int rank : {0, 1}) {
    for (Json& event : made.entry(HandMade::after_step, rank, "trace")["events"]) event["unit"] = nullptr;
  }
  expect_code(
      made,
      R"([{"order": {"first": {"op": "all_gather", "unit": ""}, "then": {"op": "reduce_scatter", "unit": ""}}}])",
      "unit_unknown", VerdictKind::unresolved);
}

TEST(TransportBytes, WithinWhatIsDue) {
  HandMade made;
  expect_pass(made, R"([{"transport_bytes": {"at_least": 100, "at_most": 120}}])");  // nobody counted
  made.run.sent = 110;
  expect_pass(made, R"([{"transport_bytes": {"at_least": 100, "at_most": 120}}])");
  expect_code(made, R"([{"transport_bytes": {"at_least": 111, "at_most": 120}}])", "transport_bytes");
  expect_code(made, R"([{"transport_bytes": {"at_least": 100, "at_most": 109}}])", "transport_bytes");
  made.run.sent.reset();
  made.run.closed_connection = 0;
  for (const int rank : {0, 1})  // whose traces claim nothing that the law could miss
    made.entry(HandMade::after_step, rank, "trace")["events"] = Json::array();
  expect_code(made, R"([{"transport_bytes": {"at_least": 100, "at_most": 120}}])", "transport_lost",
              VerdictKind::unresolved);
}

TEST(Devices, OfEveryParameter) {
  HandMade made;
  for (const int rank : {0, 1})
    made.observation(HandMade::after_step, rank)
        .entries.push_back(
            {{"what", "devices"}, {"model", "model"}, {"values", {{"weight", "cpu"}, {"bias", "cpu"}}}});
  expect_pass(made, R"([{"devices": {"is": "cpu"}}])");
  expect_code(made, R"([{"devices": {"is": "accelerator"}}])", "device");
  expect_code(made, R"([{"devices": {"is": "pinned"}}])", "device");
  for (const char* name : {"weight", "bias"})
    made.entry(HandMade::after_step, 1, "devices")["values"][name] = "cpu:pinned";
  made.entry(HandMade::after_step, 0, "devices")["values"] = {{"weight", "cpu:pinned"},
                                                              {"bias", "cpu:empty"}};
  expect_pass(made, R"([{"devices": {"is": "cpu"}}, {"devices": {"is": "pinned"}}])");
  expect_code(made, R"([{"devices": {"is": "accelerator"}}])", "device");
  for (const int rank : {0, 1})
    made.entry(HandMade::after_step, rank, "devices")["values"] = {{"bias", "cpu:empty"}};
  expect_code(made, R"([{"devices": {"is": "pinned"}}])", "nothing_observed", VerdictKind::unresolved);
  made.entry(HandMade::after_step, 0, "devices")["values"] = {{"weight", "cpu:pinned"}};
  made.entry(HandMade::after_step, 1, "devices")["values"]["bias"] = "cuda:1";
  expect_code(made, R"([{"devices": {"is": "pinned"}}])", "device");
  EXPECT_EQ(expect_code(made, R"([{"devices": {"is": "cpu"}}])", "device").divergence["parameter"], "bias");
  made.entry(HandMade::after_step, 1, "devices")["values"] = Json::object();
  expect_code(made, R"([{"devices": {"is": "cpu"}}])", "nothing_observed", VerdictKind::unresolved);
}

TEST(Devices, OfTheEntriesThatARankHasOfAStateDict) {
  HandMade made;
  const std::vector<Json> values = {{{"weight", "cpu"}, {"bias", "cpu"}}, Json::object()};
  for (const int rank : {0, 1})
    made.observation(HandMade::after_step, rank)
        .entries.push_back(
            {{"what", "devices:saved"}, {"values", values.at(static_cast<std::size_t>(rank))}});
  expect_pass(made, R"([{"devices": {"of": "saved", "is": "cpu", "count": 2, "ranks": [0]}},
                        {"devices": {"of": "saved", "is": "cpu", "count": 0, "ranks": [1]}}])");
  expect_code(made, R"([{"devices": {"of": "saved", "is": "cpu", "count": 2}}])", "entries");
  expect_code(made, R"([{"devices": {"of": "saved", "is": "accelerator", "ranks": [0]}}])", "device");
  made.entry(HandMade::after_step, 1, "devices:saved")["values"]["bias"] = "cpu";
  expect_code(made, R"([{"devices": {"of": "saved", "is": "cpu", "count": 0, "ranks": [1]}}])", "entries");
}

TEST(RegisteredParameters, NumberAndSize) {
  HandMade made;
  for (const int rank : {0, 1})
    made.observation(HandMade::after_step, rank)
        .entries.push_back({{"what", "registered_parameters"},
                            {"model", "model"},
                            {"values", {{"weight", {2, 3}}, {"bias", {rank == 0 ? 1 : 0}}}}});
  expect_pass(made, R"([{"registered_parameters": {"count": 2}}])");
  expect_code(made, R"([{"registered_parameters": {"count": 1}}])", "registered_parameters");
  expect_code(made, R"([{"registered_parameters": {"count": 2, "elements": 7}}])", "registered_parameters");
  expect_code(made, R"([{"registered_parameters": {"sizes": [1, 6]}}])", "registered_parameters");
  made.entry(HandMade::after_step, 1, "registered_parameters")["values"]["bias"] = {1};
  expect_pass(made, R"([{"registered_parameters": {"sizes": [1, 6]}}])");
  expect_code(made, R"([{"registered_parameters": {"sizes": [6]}}])", "registered_parameters");
}

TEST(Elapsed, BetweenTwoClocks) {
  HandMade made;
  const auto clock = [&](int step, int rank, int milliseconds) {
    made.observation(step, rank)
        .entries.push_back({{"what", "clock"}, {"values", {{"milliseconds", milliseconds}}}});
  };
  for (const int rank : {0, 1}) {
    clock(HandMade::after_backward, rank, 1000);
    clock(HandMade::after_step, rank, rank == 0 ? 1003 : 1020);
  }
  expect_pass(made,
              R"([{"elapsed": {"labels": ["after_backward", "after_step"], "at_least": 20, "ranks": [1]}}])");
  expect_code(
      made, R"([{"elapsed": {"labels": ["after_backward", "after_step"], "at_least": 20, "ranks": "all"}}])",
      "elapsed");
  made.entry(HandMade::after_backward, 1, "clock")["values"] = Json::object();
  expect_code(made,
              R"([{"elapsed": {"labels": ["after_backward", "after_step"], "at_least": 20, "ranks": [1]}}])",
              "nothing_observed", VerdictKind::unresolved);
}

TEST(Memory, GrowsBetweenTwoObservations) {
  HandMade made;
  const auto memory = [&](int step, int rank, Json values) {
    made.observation(step, rank).entries.push_back({{"what", "memory"}, {"values", std::move(values)}});
  };
  for (const int rank : {0, 1}) {
    memory(HandMade::after_backward, rank, {{"current", 1000}, {"peak", 9000}});
    memory(HandMade::after_step, rank, {{"current", 1600}, {"peak", rank == 0 ? 2000 : 2001}});
  }
  const auto grows = [](const char* is, int least, int most) {
    return Json::array({{{"memory",
                          {{"is", is},
                           {"labels", {"after_backward", "after_step"}},
                           {"at_least", least},
                           {"at_most", most}}}}})
        .dump();
  };
  expect_pass(made, grows("current", 600, 600).c_str());
  expect_code(made, grows("current", 0, 599).c_str(), "memory");
  expect_code(made, grows("current", 601, 700).c_str(), "memory");
  expect_pass(made, grows("peak", 0, 1001).c_str());
  EXPECT_THAT(expect_code(made, grows("peak", 0, 1000).c_str(), "memory").summary,
              ::testing::HasSubstr(
                  "on rank 1: peak device memory is 1001 bytes more than at 'after_backward', and must "
                  "be 0 to 1000"));

  made.entry(HandMade::after_step, 1, "memory")["values"] = Json::object();  // that rank does not count
  expect_code(made, grows("peak", 0, 1001).c_str(), "nothing_observed", VerdictKind::unresolved);
  made.entry(HandMade::after_backward, 1, "memory")["values"] = Json::object();
  expect_code(made, grows("peak", 0, 1001).c_str(), "nothing_observed", VerdictKind::unresolved);
}

TEST(VirtualTime, HidesCommunication) {
  HandMade made;
  const auto observed = [&](int rank, std::int64_t communication, std::int64_t exposed) {
    made.observation(HandMade::after_step, rank)
        .entries.push_back(
            {{"what", "virtual_time"},
             {"values", {{"communication", communication}, {"exposed_communication", exposed}}}});
  };
  observed(0, 1000, 170);
  observed(1, 1000, 180);
  expect_pass(made, R"([{"virtual_time": {"exposed_percent": 18}}])");
  expect_code(made, R"([{"virtual_time": {"exposed_percent": 17}}])", "virtual_time");
  for (const int rank : {0, 1}) {
    made.entry(HandMade::after_step, rank, "virtual_time")["values"] = Json::object();
    expect_code(made, R"([{"virtual_time": {"exposed_percent": 100}}])", "nothing_observed",
                VerdictKind::unresolved);
  }
}

TEST(Layout, ChunksAlongDimensionZero) {
  HandMade made;
  expect_pass(made, R"([{"layout": {"kind": "chunk_dim0", "sharded": true}}])");
  for (int rank = 0; rank < 2; ++rank) {  // same pieces, ranks exchanged
    made.entry(HandMade::after_step, rank, "parameters")["items"][0]["pieces"][0]["offset"] =
        rank == 0 ? 4 : 0;
  }
  const Verdict verdict =
      expect_code(made, R"([{"layout": {"kind": "chunk_dim0", "sharded": true}}])", "layout");
  EXPECT_EQ(verdict.divergence["rank"], 0);
  EXPECT_EQ(verdict.divergence["actual"], Json::parse("[[4, 4]]"));
  EXPECT_EQ(verdict.divergence["expected"], Json::parse("[[0, 4]]"));
}

TEST(Layout, ADimensionMayBeCountedFromTheLast) {
  const char* chunks = R"([{"layout": {"kind": "chunk_dim0", "sharded": true}}])";
  HandMade made;
  Json& unit = made.a_case.plans["model"]["units"][0];
  unit["shard_dims"] = {{"bias", -1}};
  expect_pass(made, chunks);
  for (const int nowhere : {-2, 1}) {
    unit["shard_dims"] = {{"bias", nowhere}};
    expect_code(made, chunks, "no_such_dimension", VerdictKind::setup_error);
  }
}

TEST(Layout, LiteralPieces) {
  HandMade made;
  expect_pass(made, R"([{"layout": {"sharded": true, "pieces": {"bias": [[0, 0, 2], [1, 2, 2]]}}}])");
  expect_code(made, R"([{"layout": {"sharded": true, "pieces": {"bias": [[0, 0, 4]]}}}])", "layout");
}

TEST(Layout, FlatParameterWithAlignment) {
  HandMade made;
  made.a_case.plans["model"]["api"] = "fsdp";
  // 8 + 4 elements, aligned to 4: shards of 6. The bias starts on rank 1 with the weight's last two elements
  // before it.
  made.a_case.plans["model"]["units"][0]["use_orig_params"] = true;
  auto lay = [&](int rank, int item, int offset, int length) {
    Json& pieces = made.entry(HandMade::after_step, rank,
                              "parameters")["items"][static_cast<std::size_t>(item)]["pieces"];
    const std::string key = item == 0 ? "parameters/weight" : "parameters/bias";
    const double first = (item == 0 ? 1 : 9) + offset;
    std::vector<double> values;
    for (int i = 0; i < length; ++i) values.push_back(first + i);
    made.tensor(HandMade::after_step, rank, key) = make_tensor(DType::float32, {length}, values);
    pieces = length == 0 ? Json::array()
                         : Json::array({{{"tensor", key}, {"offset", offset}, {"length", length}}});
  };
  lay(0, 0, 0, 6), lay(1, 0, 6, 2), lay(0, 1, 0, 0), lay(1, 1, 0, 4);
  expect_pass(made, R"([{"layout": {"kind": "flat", "sharded": true}, "label": "after_step"}])");
  made.a_case.plans["model"]["units"][0]["mixed_precision"] = {
      {"param_dtype", "float16"}};  // alignment 8: the same here
  expect_pass(made, R"([{"layout": {"kind": "flat", "sharded": true}, "label": "after_step"}])");
  lay(0, 0, 0, 4), lay(1, 0, 4, 4), lay(0, 1, 0, 2), lay(1, 1, 2, 2);
  expect_code(made, R"([{"layout": {"kind": "flat", "sharded": true}, "label": "after_step"}])", "layout");
}

// What it is cast to before it is sharded, and not what it is described in.
TEST(ProgramMap, KnowsInWhichDtypeAModelIsSharded) {
  const Json program = Json::parse(R"([
      {"verb": "build", "model": "model"},
      {"verb": "cast", "model": "model", "dtype": "bfloat16"},
      {"verb": "cast", "model": "model", "dtype": "float64", "match": "bias"},
      {"verb": "shard", "model": "model"},
      {"verb": "cast", "model": "model", "dtype": "float16"}])");
  const std::vector<Cast> casts = ProgramMap(program).casts_before_sharding("model");
  EXPECT_EQ(dtype_after(casts, "0.weight", DType::float32), DType::bfloat16);
  EXPECT_EQ(dtype_after(casts, "0.bias", DType::float32), DType::float64);
  EXPECT_EQ(dtype_after(casts, "steps", DType::int64), DType::int64);
  EXPECT_TRUE(ProgramMap(program).casts_before_sharding("other").empty());
}

TEST(Layout, WholeWhereItMustBeWhole) {
  HandMade made;
  expect_pass(made, R"([{"layout": {"sharded": false}, "model": "other"}])");
  expect_code(made, R"([{"layout": {"sharded": false}, "model": "model"}])", "sharded");
}

TEST(UnitTree, ExactAndWithSettings) {
  HandMade made;
  expect_pass(made, R"([{"unit_tree": [{"module": "", "settings": {"reshard_after_forward": true}}]}])");
  expect_code(made, R"([{"unit_tree": [{"module": "", "settings": {"reshard_after_forward": false}}]}])",
              "unit_setting");
  for (int rank = 0; rank < 2; ++rank) {
    made.entry(HandMade::after_step, rank, "units")["units"][0]["settings"]["mixed_precision"] = {
        {"param_dtype", "float16"}, {"reduce_dtype", nullptr}};
  }
  expect_pass(
      made,
      R"([{"unit_tree": [{"module": "", "settings": {"mixed_precision": {"param_dtype": "float16"}}}]}])");
  expect_code(
      made,
      R"([{"unit_tree": [{"module": "", "settings": {"mixed_precision": {"param_dtype": "bfloat16"}}}]}])",
      "unit_setting");
  expect_code(made, R"([{"unit_tree": [{"module": "", "settings": {"mixed_precision": {"other": null}}}]}])",
              "unit_setting");
  expect_code(made, R"([{"unit_tree": [{"module": ""}, {"module": "0"}]}])", "unit_missing");
  expect_code(made, R"([{"unit_tree": []}])", "unit_unexpected");
}

TEST(Counters, ExactAndAtLeast) {
  HandMade made;
  expect_pass(made, R"([{"counters": {"pre_backward_hooks": 1}}])");
  expect_pass(made, R"([{"counters": {"pre_backward_hooks": {"at_least": 1}}}])");
  expect_code(made, R"([{"counters": {"pre_backward_hooks": 2}}])", "counter");
  expect_code(made, R"([{"counters": {"other": {"at_least": 1}}}])", "counter");
}

TEST(TrainingState, Idle) {
  HandMade made;
  expect_pass(made, R"([{"training_state": {"is": "idle"}}])");
  made.entry(HandMade::after_step, 1, "training_state")["value"] = "forward";
  EXPECT_EQ(expect_code(made, R"([{"training_state": {"is": "idle"}}])", "training_state").divergence["rank"],
            1);
}

TEST(GradientNone, PresenceAndEnough) {
  HandMade made;
  expect_pass(made, R"([{"gradient_none": {"match": "weight", "is": false}}])");
  EXPECT_EQ(expect_code(made, R"([{"gradient_none": {"match": "bias", "is": true}}])", "gradient_none")
                .divergence["parameter"],
            "bias");
  expect_code(made, R"([{"gradient_none": {"match": "weight", "is": false, "at_least": 3}}])", "too_few");
  expect_code(made, R"([{"gradient_none": {"match": "nobody", "is": true}}])", "nothing_observed",
              VerdictKind::unresolved);
}

TEST(Finite, InfinityIsNot) {
  HandMade made;
  expect_pass(made, R"([{"finite": {"what": ["gradients"]}}])");
  set_element(made.tensor(HandMade::after_backward, 0, "gradients/bias"), 1, INFINITY);
  const Verdict verdict = expect_code(made, R"([{"finite": {"what": ["gradients"]}}])", "not_finite");
  EXPECT_EQ(verdict.divergence["parameter"], "bias");
  EXPECT_EQ(verdict.divergence["index"], Json({1}));
}

TEST(Kinds, AnUnknownOneIsTheSuitesFault) {
  HandMade made;
  expect_code(made, R"([{"hope": {}}])", "unknown_expectation", VerdictKind::setup_error);
}

}  // namespace
}  // namespace fsdp_cts
