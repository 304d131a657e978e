// Laws that hold for every case without a line in its scenario, and what assembly finds: each shown to pass
// and to fail.
#include "harness/judge/laws/laws.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <set>

#include "harness/judge/expectations/kinds.hpp"
#include "harness/judge/program_map.hpp"
#include "harness/judge/tests/hand_made.hpp"
#include "harness/scenario/read/expectation_kinds.hpp"

namespace fsdp_cts {
namespace {

const char* something = R"([{"finite": {"what": ["loss"]}}])";

Verdict spoiled(HandMade& made, const std::string& code, VerdictKind kind = VerdictKind::fail) {
  const Verdict verdict = made.judged(something);
  EXPECT_EQ(verdict.code, code) << verdict.summary;
  EXPECT_EQ(verdict.kind, kind) << verdict.summary;
  return verdict;
}

Json& first_item(HandMade& made, int rank) {
  return made.entry(HandMade::after_step, rank, "parameters")["items"][0];
}

TEST(Laws, AnHonestAnswerPasses) {
  HandMade made;
  const Verdict verdict = made.judged(something);
  EXPECT_EQ(verdict.kind, VerdictKind::pass) << verdict.code << ": " << verdict.summary;
  EXPECT_EQ(verdict.counts.checks, static_cast<long>(laws().size()) + 2);
}

TEST(AllRanksAnswer, ARankWithoutAnswer) {
  HandMade made;
  std::erase_if(made.run.observations, [](const Observation& each) {
    return each.rank == 1 && each.step == HandMade::after_backward;
  });
  EXPECT_EQ(spoiled(made, "rank_missing").divergence["rank"], 1);
}

TEST(AllRanksAnswer, AnEmptyAnswer) {
  HandMade made;
  made.observation(HandMade::after_backward, 1).entries = Json::array();
  const Verdict verdict = spoiled(made, "empty_answer");
  EXPECT_EQ(verdict.divergence["rank"], 1);
  EXPECT_EQ(verdict.divergence["expectation"], "law: all ranks answer");
}

TEST(AllRanksAnswer, OneThingLeftOut) {
  HandMade made;
  made.drop_entry(HandMade::after_step, 1, "training_state");
  EXPECT_EQ(spoiled(made, "entry_missing").divergence["what"], "training_state");
}

TEST(AllRanksAnswer, AListWithoutItemsNamesWhatWasToBeInIt) {
  HandMade made;
  made.entry(HandMade::after_step, 1, "parameters")["items"] = Json::array();
  EXPECT_THAT(spoiled(made, "entry_missing").summary,
              ::testing::HasSubstr(
                  "answered 'parameters' with a list without items; 2 parameters were to be in it, by "
                  "the names of the case's model (weight, bias)"));
}

TEST(AllRanksAnswer, WhatAFailedAttemptSkippedIsExcused) {
  HandMade made;
  made.a_case.program[10] = {{"verb", "observe"}, {"what", {"output"}}, {"model", "model"}};
  EXPECT_EQ(made.judged(something).kind, VerdictKind::pass);
  for (int rank = 0; rank < 2; ++rank) made.entry(HandMade::attempt_end, rank, "attempt")["error"] = nullptr;
  const Verdict verdict = made.judged(R"([{"nothing": 0}, {"no_error": {"attempt": "bad"}}])");
  EXPECT_NE(verdict.kind, VerdictKind::pass);
}

TEST(ParametersAreComplete, OneNobodyNamed) {
  HandMade made;
  for (int rank = 0; rank < 2; ++rank) made.entry(HandMade::after_step, rank, "parameters")["items"].erase(1);
  EXPECT_EQ(spoiled(made, "parameter_missing").divergence["parameter"], "bias");
}

TEST(ParametersAreComplete, AGradientNobodyNamed) {
  HandMade made;
  for (int rank = 0; rank < 2; ++rank)
    made.entry(HandMade::after_backward, rank, "gradients")["items"].erase(1);
  const Verdict verdict = spoiled(made, "parameter_missing");
  EXPECT_EQ(verdict.divergence["what"], "gradients");
  EXPECT_EQ(verdict.divergence["parameter"], "bias");
}

TEST(ParametersAreComplete, MasterWeightsStayInTheModelsDtype) {
  HandMade made;
  for (int rank = 0; rank < 2; ++rank) {
    first_item(made, rank)["dtype"] = "bfloat16";
    made.tensor(HandMade::after_step, rank, "parameters/weight") =
        make_tensor(DType::bfloat16, {4}, {1, 2, 3, 4});
  }
  EXPECT_EQ(spoiled(made, "dtype").divergence["actual"], "bfloat16");
}

TEST(SomethingIsSharded, AReplicaIsNotFsdp) {
  HandMade made;
  for (int rank = 0; rank < 2; ++rank) {
    Observation& observation = made.observation(HandMade::after_step, rank);
    for (Json& item : made.entry(HandMade::after_step, rank, "parameters")["items"]) {
      const bool weight = item["name"] == "weight";
      const int length = weight ? 8 : 4;
      const std::string key = "parameters/" + item["name"].get<std::string>();
      std::vector<double> values;
      for (int i = 0; i < length; ++i) values.push_back((weight ? 1 : 9) + i);
      observation.tensors[key] = make_tensor(DType::float32, {length}, values);
      item["sharded"] = false;
      item["pieces"][0]["offset"] = 0;
      item["pieces"][0]["length"] = length;
    }
  }
  spoiled(made, "not_sharded");
  Json& unit = made.a_case.plans["model"]["units"][0];
  // Through `wrap()`: the settings of the context, unless the unit has its own; outside of any there is no
  // unit.
  unit["enable_wrap"] = {{"sharding_strategy", "NO_SHARD"}};
  EXPECT_EQ(made.judged(something).kind, VerdictKind::pass);
  unit["sharding_strategy"] = "FULL_SHARD";
  spoiled(made, "not_sharded");
  unit["enable_wrap"] = "outside";
  EXPECT_EQ(made.judged(something).kind, VerdictKind::pass);
  unit.erase("enable_wrap");
  unit["sharding_strategy"] = "NO_SHARD";
  EXPECT_EQ(made.judged(something).kind, VerdictKind::pass);
}

TEST(Program, ARankTakesNoPartAfterItsProcessEnded) {
  const Json program = Json::parse(
      R"([{"verb": "build"}, {"verb": "end_process", "ranks": [1]}, {"verb": "observe", "what": "loss"}])");
  const ProgramMap map(program);
  EXPECT_TRUE(map.takes_part(1, 1));
  EXPECT_FALSE(map.takes_part(2, 1));
  EXPECT_TRUE(map.takes_part(2, 0));
  EXPECT_TRUE(map.ends(1));
  EXPECT_FALSE(map.ends(0));
}

TEST(SomethingIsSharded, WhatAFailedForwardLeftUnshardedIsNoProof) {
  HandMade made;
  const ProgramMap failed(made.a_case.program, {{HandMade::attempt_end, 10}});
  EXPECT_TRUE(failed.at(HandMade::after_step).settled);
  EXPECT_FALSE(failed.at(HandMade::attempt_end).settled);
  // Whatever a testee says of the step that failed: what stands before the attempt was acted out.
  constexpr int attempt_begin = HandMade::attempt_end - 2;
  const ProgramMap claimed(made.a_case.program, {{HandMade::attempt_end, -7}});
  for (int step = 0; step < attempt_begin; ++step) EXPECT_EQ(claimed.at(step).phase, failed.at(step).phase);
  Json program = Json::parse(
      R"([{"verb": "attempt_begin"}, {"verb": "forward"}, {"verb": "backward"}, {"verb": "attempt_end"}, {"verb": "observe", "what": ["parameters"]}])");
  EXPECT_TRUE(ProgramMap(program).at(4).settled);
  EXPECT_FALSE(ProgramMap(program, {{3, 1}}).at(4).settled);
  EXPECT_EQ(ProgramMap(program, {{3, 1}}).at(4).phase, "forward");
}

TEST(CollectivesAgree, OrderAndSkippedOperations) {
  HandMade made;
  Json& events = made.entry(HandMade::after_step, 1, "trace")["events"];
  std::swap(events[1], events[2]);
  const Verdict verdict = spoiled(made, "collective_order");
  EXPECT_EQ(verdict.divergence["rank"], 1);
  EXPECT_EQ(verdict.divergence["index"], 1);
  events.erase(2);
  std::swap(events[0], events[1]);
  spoiled(made, "collective_order");
}

TEST(CollectivesAgree, ARankThatIssuesNothing) {
  HandMade made;
  made.entry(HandMade::after_step, 1, "trace")["events"] = Json::array();
  spoiled(made, "collective_order");
}

TEST(CollectivesAgree, DtypeOperatorAndSizeAreEqualEverywhere) {
  for (const auto& [key, value] : {std::pair<const char*, Json>{"dtype", "float16"}, {"reduce_op", "max"}}) {
    HandMade made;
    made.entry(HandMade::after_step, 1, "trace")["events"][2][key] = value;
    spoiled(made, "collective_order");
  }
}

TEST(CollectivesAgree, SizesFitTheGroupAndTheRankIsAMember) {
  HandMade made;
  for (int rank = 0; rank < 2; ++rank)
    made.entry(HandMade::after_step, rank, "trace")["events"][0]["out_numel"] = 13;
  spoiled(made, "collective_size");
  HandMade other;
  other.entry(HandMade::after_step, 1, "trace")["events"][0]["group"] = {0};
  EXPECT_EQ(spoiled(other, "collective_group").divergence["rank"], 1);
}

TEST(TransportCarriesTheTrace, EnoughBytesForEveryCollective) {
  // 48 bytes a rank: two gathers of 12 bfloat16 and one reduction of 12 float32, half of each sent.
  HandMade made;
  made.run.sent = 96;
  EXPECT_EQ(made.judged(something).counts.witnessed, 3);
  made.run.sent = 95;
  EXPECT_EQ(spoiled(made, "collectives_unseen").divergence["expected"], 96.0);
  made.run.sent.reset();
  EXPECT_EQ(made.judged(something).counts.witnessed, 0);
}

// Else a testee could choose not to be counted.
TEST(TransportCarriesTheTrace, WhoClosesAConnectionIsNotBelieved) {
  HandMade made;
  made.run.closed_connection = 1;
  const Verdict verdict = made.judged(something);
  EXPECT_EQ(verdict.kind, VerdictKind::unresolved);
  EXPECT_EQ(verdict.code, "transport_lost") << verdict.summary;
}

TEST(TensorsAreContiguous, WhatARankSaysOfItsMemory) {
  HandMade made;
  first_item(made, 1)["contiguous"] = true;
  EXPECT_EQ(made.judged(something).kind, VerdictKind::pass);
  first_item(made, 1)["contiguous"] = false;
  const Verdict verdict = spoiled(made, "not_contiguous");
  EXPECT_EQ(verdict.divergence["rank"], 1);
  EXPECT_EQ(verdict.divergence["parameter"], "weight");
  const auto restride = [&](const char* name) {
    made.a_case.program.push_back({{"verb", "restride"}, {"model", "model"}, {"name", name}});
  };
  restride("other");
  EXPECT_EQ(made.judged(something).code, "not_contiguous");
  restride("weight");
  EXPECT_EQ(made.judged(something).kind, VerdictKind::pass) << "the program lays it out so";
}

TEST(NoNan, NeitherInAnswersNorInTruths) {
  HandMade made;
  set_element(made.tensor(HandMade::after_step, 1, "parameters/weight"), 3, NAN);
  const Verdict verdict = spoiled(made, "nan");
  EXPECT_EQ(verdict.divergence["rank"], 1);
  EXPECT_EQ(verdict.divergence["index"], Json({3, 1}));
  HandMade truth;
  set_element(
      truth.golden.evidence.values.at({HandMade::after_step, "parameters", "model", "weight", {}}).tensor, 0,
      NAN);
  spoiled(truth, "truth_nan", VerdictKind::setup_error);
}

TEST(AttemptsAreExpected, AnErrorThatNobodyNamed) {
  HandMade made;
  const Verdict verdict = made.judged(R"([{"nothing": 0}, {"finite": {"what": ["loss"]}}])");
  // The unknown kind is what decides; without it the law would.
  EXPECT_EQ(verdict.kind, VerdictKind::setup_error);
  made.a_case.expect = Json::parse(something);
  const Verdict law = judge(made.a_case, made.run, {made.reference.truth(), made.golden.truth()});
  EXPECT_EQ(law.code, "unexpected_error") << law.summary;
}

TEST(Assembly, AMissingShard) {
  HandMade made;
  first_item(made, 1)["pieces"] = Json::array();
  const Verdict verdict = spoiled(made, "shard_missing");
  EXPECT_EQ(verdict.divergence["parameter"], "weight");
  EXPECT_EQ(verdict.divergence["index"], Json({2, 0}));
}

TEST(Assembly, OverlappingShards) {
  HandMade made;
  first_item(made, 1)["pieces"][0]["offset"] = 3;
  EXPECT_EQ(spoiled(made, "shard_overlap").divergence["rank"], 1);
}

TEST(Assembly, OutOfRange) {
  HandMade made;
  first_item(made, 1)["pieces"][0]["offset"] = 5;
  spoiled(made, "shard_out_of_range");
  first_item(made, 1)["pieces"][0]["offset"] = -1;
  spoiled(made, "shard_out_of_range");
}

TEST(Assembly, WrongShapeAndDtype) {
  HandMade made;
  first_item(made, 1)["global_shape"] = {2, 4};
  EXPECT_EQ(spoiled(made, "shape").divergence["actual"], Json({2, 4}));
  HandMade dtype;
  first_item(dtype, 1)["dtype"] = "bfloat16";  // the tensor is float32
  spoiled(dtype, "dtype");
  HandMade length;
  first_item(length, 1)["pieces"][0]["length"] = 3;
  spoiled(length, "shape");
}

TEST(Assembly, RanksThatDisagreeOnTheDtype) {
  HandMade made;
  made.entry(HandMade::after_backward, 1, "gradients")["items"][0]["dtype"] = "float64";
  made.tensor(HandMade::after_backward, 1, "gradients/weight") =
      make_tensor(DType::float64, {4}, {104, 105, 106, 107});
  spoiled(made, "rank_disagreement");
}

TEST(Assembly, PaddingIsHeldBehindThePiece) {
  HandMade made;
  first_item(made, 1)["pieces"][0]["padding"] = 2;
  made.tensor(HandMade::after_step, 1, "parameters/weight") =
      make_tensor(DType::float32, {6}, {5, 6, 7, 8, 42, 42});
  EXPECT_EQ(
      made.judged(R"([{"equal": {"what": ["parameters"], "to": ["reference"]}, "model": "model"}])").kind,
      VerdictKind::pass);
}

TEST(Assembly, NamesTensorsAndStepsThatDoNotExist) {
  HandMade made;
  first_item(made, 0)["name"] = "wait";
  spoiled(made, "unknown_name");
  HandMade tensor;
  first_item(tensor, 0)["pieces"][0]["tensor"] = "elsewhere";
  spoiled(tensor, "tensor_missing");
  HandMade step;
  step.run.observations.push_back(step.observation(HandMade::after_step, 1));
  step.run.observations.back().step = 999;
  spoiled(step, "unknown_step");
  HandMade malformed;
  malformed.entry(HandMade::after_step, 0, "parameters")["items"] = "none";
  spoiled(malformed, "malformed_entry");
  HandMade twice;
  auto& entries = twice.observation(HandMade::after_step, 0).entries;
  entries.push_back(entries[0]);
  spoiled(twice, "duplicate_entry");
}

TEST(AllRanksAnswer, AFailedAttemptExcusesNothingBeforeIt) {
  HandMade made;
  made.entry(HandMade::attempt_end, 1, "attempt")["error"]["step"] = 0;
  std::erase_if(made.run.observations,
                [](const Observation& each) { return each.step == HandMade::after_step && each.rank == 1; });
  EXPECT_EQ(spoiled(made, "rank_missing").divergence["step"], HandMade::after_step);
  made.entry(HandMade::attempt_end, 1, "attempt")["error"]["step"] = std::numeric_limits<int>::min();
  spoiled(made, "rank_missing");
}

TEST(Assembly, ReplicasOfAHybridMeshHaveEqualBits) {
  HandMade made;
  made.a_case.plans["model"]["mesh"] = {2, 1};
  for (int rank = 0; rank < 2; ++rank) {
    for (const auto& [step, what, first] : {std::tuple(HandMade::after_step, "parameters", 1.0),
                                            std::tuple(HandMade::after_backward, "gradients", 100.0)}) {
      for (Json& item : made.entry(step, rank, what)["items"]) {
        const bool weight = item["name"] == "weight";
        const int length = weight ? 8 : 4;
        std::vector<double> values;
        for (int i = 0; i < length; ++i) values.push_back(first + (weight ? 0 : 8) + i);
        made.tensor(step, rank, std::string(what) + "/" + item["name"].get<std::string>()) =
            make_tensor(DType::float32, {length}, values);
        item["pieces"][0]["offset"] = 0;
        item["pieces"][0]["length"] = length;
      }
    }
  }
  EXPECT_EQ(made.judged(something).kind, VerdictKind::pass);
  HandMade silent = made;
  silent.entry(HandMade::after_step, 1, "parameters")["items"].erase(1);
  EXPECT_EQ(spoiled(silent, "shard_missing").divergence["rank"], 1);
  set_element(made.tensor(HandMade::after_step, 1, "parameters/bias"), 0, 0);
  EXPECT_EQ(spoiled(made, "replica_differs").divergence["rank"], 1);
  EXPECT_EQ(spoiled(made, "replica_differs").divergence["clause"], "FS-HSDP-2");
}

TEST(RankEnds, WorstRankDecides) {
  const auto ending = [](RankEnd end, const std::string& code) {
    HandMade made;
    made.run.ranks[1].end = end;
    made.run.ranks[1].detail_code = code;
    made.run.ranks[1].detail = "what happened";
    made.run.ranks[1].last_step = 5;
    made.run.ranks[1].last_verb = "backward";
    made.run.ranks[0].end = end == RankEnd::unsupported ? RankEnd::unsupported : RankEnd::aborted;
    return made.judged(something);
  };
  EXPECT_EQ(ending(RankEnd::crash, "signal").kind, VerdictKind::crash);
  EXPECT_EQ(ending(RankEnd::crash, "signal").code, "signal");
  EXPECT_EQ(ending(RankEnd::crash, "signal").divergence["rank"], 1);
  EXPECT_EQ(ending(RankEnd::hang, "verb_deadline").kind, VerdictKind::hang);
  EXPECT_EQ(ending(RankEnd::hang, "verb_deadline").divergence["verb"], "backward");
  EXPECT_EQ(ending(RankEnd::error, "").code, "exception");
  EXPECT_EQ(ending(RankEnd::protocol_error, "oversize_frame").code, "oversize_frame");
  EXPECT_EQ(ending(RankEnd::not_started, "not_executable").kind, VerdictKind::setup_error);
  EXPECT_EQ(ending(RankEnd::not_started, "no_descriptor").kind, VerdictKind::setup_error);
  EXPECT_EQ(ending(RankEnd::not_started, "exit").kind, VerdictKind::crash);
  EXPECT_EQ(ending(RankEnd::not_started, "exit").code, "start_failed");
  EXPECT_EQ(ending(RankEnd::not_started, "exit").divergence["reason"], "exit");
  EXPECT_EQ(ending(RankEnd::not_started, "no_hello").kind, VerdictKind::hang);
  EXPECT_EQ(ending(RankEnd::unsupported, "").kind, VerdictKind::unsupported);
}

TEST(RankEnds, OneRankCannotOptOutAlone) {
  HandMade made;
  made.run.ranks[1].end = RankEnd::unsupported;
  EXPECT_EQ(made.judged(something).code, "unsupported_disagreement");
}

TEST(Minimum, APassThatLookedAtTooLittleIsUnresolved) {
  HandMade made;
  made.a_case.minimum = {{"elements", 13}};
  const char* twelve = R"([{"equal": {"what": ["parameters"], "to": ["reference"]}, "model": "model"}])";
  Verdict verdict = made.judged(twelve);
  EXPECT_EQ(verdict.kind, VerdictKind::unresolved);
  EXPECT_EQ(verdict.code, "too_little_compared");
  EXPECT_EQ(verdict.divergence["actual"], 12);
  made.a_case.minimum = {{"elements", 12}, {"tensors", 2}, {"collectives", 3}};
  EXPECT_EQ(made.judged(twelve).kind, VerdictKind::pass);
  made.a_case.minimum = {{"collectives", 4}};
  EXPECT_EQ(made.judged(twelve).kind, VerdictKind::unresolved);
}

TEST(Minimum, NothingExpectedIsNothingProved) {
  HandMade made;
  for (int rank = 0; rank < 2; ++rank) made.entry(HandMade::attempt_end, rank, "attempt")["error"] = nullptr;
  made.a_case.expect = Json::array();
  EXPECT_EQ(judge(made.a_case, made.run, {made.reference.truth(), made.golden.truth()}).code,
            "nothing_checked");
}

DeviceFinding race_in(int step, int rank) {
  return {rank, step, "stream_race",
          Json::parse(R"({"type": "finding", "code": "stream_race", "text": "0.weight (256 bytes): a race",
                          "earlier": {"operation": "aten::add_", "timeline": "all_gather_stream", "access": "write"},
                          "buffer": "0.weight", "missing": "a wait"})")};
}

TEST(WorkOfTheDeviceIsOrdered, AFindingConvicts) {
  HandMade made;
  made.run.findings = {race_in(HandMade::after_step, 1), race_in(HandMade::after_backward, 0)};
  const Verdict verdict = spoiled(made, "stream_race");
  EXPECT_EQ(verdict.summary, "rank 0: 0.weight (256 bytes): a race");
  EXPECT_EQ(verdict.divergence["expectation"], "law: work of the device is ordered");
  EXPECT_EQ(verdict.divergence["clause"], "G-11");
  EXPECT_EQ(verdict.divergence["step"], HandMade::after_backward);
  EXPECT_EQ(verdict.divergence["rank"], 0);
  EXPECT_EQ(verdict.divergence["earlier"]["timeline"], "all_gather_stream");
  EXPECT_EQ(verdict.divergence["missing"], "a wait");
}

TEST(WorkOfTheDeviceIsOrdered, WhoSaysThatItUsesTheDeviceDoes) {
  HandMade made;
  made.run.hello["device"] = "sim";
  EXPECT_EQ(spoiled(made, "device_unused").divergence["rank"], 0);
  for (RankReport& rank : made.run.ranks) rank.launches = 7;
  EXPECT_EQ(made.judged(something).kind, VerdictKind::pass);
  made.run.ranks[1].launches = 0;
  EXPECT_EQ(spoiled(made, "device_unused").divergence["rank"], 1);
}

TEST(WorkOfTheDeviceIsOrdered, ACaseThatComputesNothingNeedsNoDevice) {
  HandMade made;
  made.run.hello["device"] = "sim";
  for (Json& step : made.a_case.program) {
    if (step["verb"] == "forward") step["verb"] = "set_training";
  }
  EXPECT_EQ(made.judged(something).kind, VerdictKind::pass);
}

TEST(MemoryOfTheDeviceIsGivenBack, WhoKeepsSomeIsNamed) {
  HandMade made;
  for (RankReport& rank : made.run.ranks) rank.kept_bytes = 0;
  EXPECT_EQ(made.judged(something).kind, VerdictKind::pass);
  made.run.ranks[1].kept_bytes = 512;
  const Verdict verdict = spoiled(made, "memory_kept");
  EXPECT_EQ(verdict.divergence["rank"], 1);
  EXPECT_EQ(verdict.divergence["clause"], "G-12");
  EXPECT_EQ(verdict.divergence["actual"], 512);
}

constexpr int forward_step = 3, backward_step = 5;

DeviceUse waited(int step, int rank, const std::string& operation) {
  return {rank, step, {{"host_waits", {{{"operation", operation}, {"scope", ""}, {"times", 2}}}}}};
}

TEST(TheHostDoesNotWait, AWaitConvicts) {
  HandMade made;
  made.run.uses = {{0, forward_step, {{"host_waits", Json::array()}}},
                   waited(backward_step, 1, "synchronize an event")};
  const Verdict verdict = spoiled(made, "host_waited");
  EXPECT_EQ(verdict.divergence["clause"], "G-13");
  EXPECT_EQ(verdict.divergence["rank"], 1);
  EXPECT_EQ(verdict.divergence["step"], backward_step);
  EXPECT_EQ(verdict.divergence["actual"]["times"], 2);
}

TEST(TheHostDoesNotWait, WhatTheCaseAsksFor) {
  auto kind_of = [](const std::string& operation, auto change) {
    HandMade made;
    change(made.a_case);
    made.run.uses = {waited(forward_step, 0, operation)};
    return made.judged(something).kind;
  };
  const std::string event = "synchronize an event", copied = "copy from host to device";
  auto flat = [](Case& a_case) { a_case.plans["model"]["api"] = "fsdp"; };
  EXPECT_EQ(kind_of(event, flat), VerdictKind::pass);
  EXPECT_EQ(kind_of("synchronize a stream", flat), VerdictKind::fail);
  EXPECT_EQ(kind_of(copied, flat), VerdictKind::fail);
  auto unlimited = [&](Case& a_case) {
    flat(a_case);
    a_case.plans["model"]["units"][0]["limit_all_gathers"] = false;
  };
  EXPECT_EQ(kind_of(event, unlimited), VerdictKind::fail);
  auto offloaded = [](Case& a_case) { a_case.plans["model"]["units"][0]["cpu_offload"] = true; };
  EXPECT_EQ(kind_of("synchronize a stream", offloaded), VerdictKind::pass);
  auto from_host = [](Case& a_case) { a_case.program[forward_step]["host"] = true; };
  EXPECT_EQ(kind_of(copied, from_host), VerdictKind::pass);
  EXPECT_EQ(kind_of(event, from_host), VerdictKind::fail);
  auto moved = [](Case& a_case) { a_case.program[2]["verb"] = "move"; };
  EXPECT_EQ(kind_of(copied, moved), VerdictKind::pass);
  auto checked = [](Case& a_case) { a_case.switches = {{"TORCH_DISTRIBUTED_DEBUG", "DETAIL"}}; };
  EXPECT_EQ(kind_of(copied, checked), VerdictKind::pass);
}

TEST(TheHostDoesNotWait, ForTheGradientOfALeafOnTheHost) {
  auto kind_of = [](const std::string& operation, bool host, bool leaf) {
    HandMade made;
    if (host) made.a_case.program[forward_step]["host"] = true;
    if (leaf) made.a_case.program[2]["verb"] = "leaf";
    made.run.uses = {waited(backward_step, 0, operation)};
    return made.judged(something).kind;
  };
  EXPECT_EQ(kind_of("copy from device to host", true, true), VerdictKind::pass);
  EXPECT_EQ(kind_of("copy from device to host", true, false), VerdictKind::fail);
  EXPECT_EQ(kind_of("copy from device to host", false, true), VerdictKind::fail);
  EXPECT_EQ(kind_of("synchronize a stream", true, true), VerdictKind::fail);
}

// The model of both instances is one unit with rows for two ranks: 36 elements and 4 more rows of 3, with alignment.
TEST(MemoryIsWithinBounds, WhoTakesMoreConvicts) {
  auto verdict_of = [](int step, long peak) {
    HandMade made;
    made.reference.evidence.memory[{step, 1}] = 100000;
    made.run.uses = {{1, step, {{"begin_bytes", 5000}, {"peak_bytes", peak}}}};
    return made.judged(something);
  };
  const long without_units = 5000 + 100000 + 10000 + 8192;
  for (const int step : {forward_step, backward_step}) {
    EXPECT_EQ(verdict_of(step, without_units).kind, VerdictKind::pass);
    const Verdict verdict = verdict_of(step, without_units + 10000);
    EXPECT_EQ(verdict.code, "memory_exceeded");
    EXPECT_EQ(verdict.divergence["clause"], "G-14");
    EXPECT_EQ(verdict.divergence["rank"], 1);
    EXPECT_EQ(verdict.divergence["step"], step);
  }
}

TEST(MemoryIsWithinBounds, OfManyUnitsTwoAndABuffer) {
  auto verdict_of = [](const Json& reshard, long taken) {
    HandMade made;
    Json stack{{"type", "Sequential"}, {"class", "Sequential"}, {"children", Json::array()}};
    Json units = Json::array();
    for (int i = 0; i < 6; ++i) {
      const Json linear{{"type", "Linear"}, {"class", "Linear"}, {"in", 100}, {"out", 100}, {"bias", false}};
      stack["children"].push_back({std::to_string(i), linear});
      units.push_back({{"modules", {std::to_string(i)}}, {"reshard_after_forward", reshard}});
    }
    units.push_back({{"modules", {""}}});
    made.a_case.models["many"] = stack;
    made.a_case.plans["many"] = {{"api", "fully_shard"}, {"units", units}};
    made.reference.evidence.memory[{forward_step, 0}] = 0;
    made.run.uses = {{0, forward_step, {{"begin_bytes", 0}, {"peak_bytes", taken}}}};
    return made.judged(something).code;
  };
  const long unit = 4 * (100 * 100 + 2 * 100 + 16);
  // The models that are always there: two parameters in one unit, counted once more for the buffer, and twice for the one without a
  // plan.
  const long others = 4 * 5 * (8 + 2 * 2 + 16 + 4 + 2 + 16);
  EXPECT_EQ(verdict_of(true, others + 3 * unit + 8192), "pass");
  EXPECT_EQ(verdict_of(true, others + 3 * unit + 8193), "memory_exceeded");
  EXPECT_EQ(verdict_of(false, others + 8 * unit + 8192), "pass");
  EXPECT_EQ(verdict_of(false, others + 8 * unit + 8193), "memory_exceeded");
}

TEST(Kinds, EveryKindOfTheLanguageIsThere) {
  std::set<std::string> of_language, judged;
  for (const ExpectationKind& kind : expectation_kinds_of_language()) of_language.insert(kind.name);
  for (const auto& [name, check] : expectation_kinds()) judged.insert(name);
  EXPECT_EQ(judged, of_language);
}

}  // namespace
}  // namespace fsdp_cts
