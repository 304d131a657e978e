#include "harness/sdk/cpp/interpreter.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "harness/sdk/cpp/tests/case_in_memory.hpp"

namespace fsdp_cts::sdk {
namespace {

class PlainOperations : public Operations {
 public:
  Identity identity() const override { return {"plain", "1", {}, "none", "cpu", "unspecified", {}}; }
  void save_checkpoint(const Checkpoint& checkpoint) override { note("save", checkpoint); }
  void load_checkpoint(const Checkpoint& checkpoint) override { note("load", checkpoint); }
  StateDict state_dict(Model& model, const std::string& kind) override {
    state_dicts.push_back(context().phase);
    return Operations::state_dict(model, kind);
  }
  std::function<void()> enter(Model&, const Json&) override {
    throw std::logic_error("not in " + context().phase);
  }
  StateDict full_state_dict(Model& model, const FullStateDictOptions& options) override {
    auto state = Operations::state_dict(model, "full");
    if (options.rank0_only && context().rank != 0) state.items.clear();
    return state;
  }

  void broadcast_state_dict(Model&, const StateDict& state) override {
    broadcast.push_back(state.items.size());
  }

  std::vector<std::string> checkpoints;  // what was asked for
  std::vector<std::size_t> broadcast;    // items of the state dicts
  std::vector<std::string> state_dicts;  // the phases in which

 private:
  void note(const std::string& what, const Checkpoint& of) {
    std::string text = what + " " + of.format + " " + of.folder.string() + " " + of.model->instance;
    if (of.optimizer) text += " with optimizer";
    if (of.like) text += " like " + of.like->instance;
    if (of.optimizer_like) text += " like optimizer";
    checkpoints.push_back(std::move(text));
  }
};

// Runs a whole program on one rank; observations by step.
struct Played {
  Played(const CaseInMemory& a_case, int rank = 0)
      : a_case_(a_case.parsed()), interpreter(operations, a_case_, Data(a_case_.data, rank), rank) {
    for (int step = 0; step < static_cast<int>(a_case_.program.size()); ++step) {
      if (interpreter.will_run(step)) ran.push_back(step);
      if (auto observation = interpreter.run(step)) observations.push_back(*std::move(observation));
    }
  }
  // Of the last observation that has such an entry.
  Json entry(const std::string& what) const { return at(what).first; }
  at::Tensor tensor(const std::string& what, std::size_t item = 0) const {
    const auto [entry, observation] = at(what);
    const std::string key =
        entry.contains("tensor") ? entry["tensor"] : entry["items"].at(item)["pieces"].at(0)["tensor"];
    return from_host(observation->tensors.at(key));
  }
  std::pair<Json, const Observation*> at(const std::string& what) const {
    for (auto o = observations.rbegin(); o != observations.rend(); ++o) {
      for (const Json& entry : o->entries) {
        if (entry["what"] == what) return {entry, &*o};
      }
    }
    throw std::out_of_range("nothing observed " + what);
  }

  Case a_case_;
  PlainOperations operations;
  Interpreter interpreter;
  std::vector<int> ran;
  std::vector<Observation> observations;
};

// y = w x with w = 3, x = (1, 2).
void one_weight(CaseInMemory& c) {
  c.model(linear(1, 1, false))
      .parameter("weight", at::full({1, 1}, 3.f))
      .input("x", at::tensor({1.f, 2.f}).view({2, 1}));
  c.steps({{{"verb", "build"}, {"model", "model"}, {"device", "cpu"}}});
}

// Two layers of one weight each, "0.weight" and "1.weight".
void two_weights(CaseInMemory& c, float first, float second) {
  c.model({{"type", "Sequential"},
           {"class", "Sequential"},
           {"children",
            Json::array({Json::array({"0", linear(1, 1, false)}), Json::array({"1", linear(1, 1, false)})})}})
      .parameter("0.weight", at::full({1, 1}, first))
      .parameter("1.weight", at::full({1, 1}, second));
}

Json forward(Json input = "x") {
  return {{"verb", "forward"},
          {"input", Json::array({std::move(input)})},
          {"model", "model"},
          {"output", "output"}};
}
Json observe(const std::vector<std::string>& what) {
  return {{"verb", "observe"}, {"what", what}, {"model", "model"}};
}
const Json sum = {{"verb", "loss"}, {"kind", "sum"}, {"of", {"output"}}, {"into", "loss"}};
const Json backward = {{"verb", "backward"}, {"loss", "loss"}};

TEST(Interpreter, TrainsAStep) {
  CaseInMemory c;
  one_weight(c);
  c.steps({{{"verb", "optimizer"}, {"as", "o"}, {"model", "model"}, {"kind", "SGD"}, {"lr", 0.5}},
           forward(),
           sum,
           backward,
           observe({"loss", "output", "gradients"}),
           {{"verb", "step"}, {"optimizer", "o"}},
           observe({"parameters"})});
  const Played run(c);
  EXPECT_EQ(run.tensor("loss").item<float>(), 9);       // 3 * (1 + 2)
  EXPECT_EQ(run.tensor("gradients").item<float>(), 3);  // 1 + 2
  EXPECT_EQ(run.tensor("parameters").item<float>(), 3 - 0.5f * 3);
  const Json item = run.entry("parameters")["items"][0];
  EXPECT_EQ(item["name"], "weight");
  EXPECT_EQ(item["global_shape"], Json({1, 1}));
  EXPECT_EQ(item["pieces"][0]["length"], 1);
  EXPECT_FALSE(item["sharded"]);
}

TEST(Interpreter, StepsInBackwardAndTakesTheGradientAway) {
  CaseInMemory c;
  one_weight(c);
  c.steps({{{"verb", "optimizer"}, {"as", "o"}, {"model", "model"}, {"kind", "SGD"}, {"lr", 0.5}},
           {{"verb", "step_in_backward"}, {"optimizer", "o"}},
           forward(),
           sum,
           backward,
           observe({"parameters", "gradients", "counters"})});
  const Played run(c);
  EXPECT_EQ(run.tensor("parameters").item<float>(), 3 - 0.5f * 3);
  EXPECT_TRUE(run.entry("gradients")["items"][0]["none"]);
  EXPECT_EQ(run.entry("counters")["values"], Json({{"gradient_hooks", 1}}));
}

TEST(Interpreter, TheFirstOfTwoOptimizersThatStepInBackwardTakesTheGradientAway) {
  CaseInMemory c;
  one_weight(c);
  c.steps({{{"verb", "optimizer"}, {"as", "o"}, {"model", "model"}, {"kind", "SGD"}, {"lr", 0.5}},
           {{"verb", "optimizer"}, {"as", "p"}, {"model", "model"}, {"kind", "SGD"}, {"lr", 2.0}},
           {{"verb", "step_in_backward"}, {"optimizer", "o"}},
           {{"verb", "step_in_backward"}, {"optimizer", "p"}},
           forward(),
           sum,
           backward,
           observe({"parameters", "counters"})});
  const Played run(c);
  EXPECT_EQ(run.tensor("parameters").item<float>(), 3 - 0.5f * 3);
  EXPECT_EQ(run.entry("counters")["values"], Json({{"gradient_hooks", 2}}));
}

TEST(Interpreter, AScalerLeavesOutAStepThatIsNotFinite) {
  CaseInMemory c;
  one_weight(c);
  c.input("bad", at::full({2, 1}, std::numeric_limits<float>::infinity()));
  const auto step_from = [](const char* input) {
    return std::vector<Json>{{{"verb", "zero_grad"}, {"model", "model"}},
                             forward(input),
                             sum,
                             {{"verb", "scale_loss"}},
                             {{"verb", "backward"}, {"loss", "scaled"}},
                             {{"verb", "scaler_step"}},
                             {{"verb", "update_scale"}},
                             observe({"register:scale", "parameters"})};
  };
  c.steps({{{"verb", "optimizer"}, {"as", "optimizer"}, {"model", "model"}, {"kind", "SGD"}, {"lr", 0.5}},
           {{"verb", "scaler"}, {"init_scale", 4.0}, {"growth_interval", 2}}});
  for (const char* input : {"bad", "x", "x"}) c.steps(step_from(input));
  const Played run(c);
  const auto value = [&](std::size_t step, const char* name) {
    return from_host(run.observations.at(step).tensors.at(name)).item<float>();
  };
  EXPECT_EQ(value(0, "register:scale"), 2);
  EXPECT_EQ(value(0, "parameters/model/weight"), 3);
  EXPECT_EQ(value(1, "register:scale"), 2);
  EXPECT_EQ(value(1, "parameters/model/weight"), 3 - 0.5f * 3);
  EXPECT_EQ(value(2, "register:scale"), 4);
  EXPECT_EQ(value(2, "parameters/model/weight"), 3 - 2 * 0.5f * 3);
}

TEST(Interpreter, AMethodRunsWithoutHooksUntilItCountsAsForward) {
  CaseInMemory c;
  c.model({{"type", "Graph"},
           {"class", "Graph"},
           {"inputs", {"a"}},
           {"forward", Json::array({{{"relu", "a"}, {"to", "b"}}})},
           {"output", "b"},
           {"methods",
            {{"twice",
              {{"inputs", {"a"}},
               {"forward", Json::array({{{"add", {"a", "a"}}, {"to", "b"}}})},
               {"output", "b"}}}}}})
      .input("x", at::tensor({-1.f, 2.f}));
  Json call = forward();
  call["method"] = "twice";
  c.steps({{{"verb", "build"}, {"model", "model"}, {"device", "cpu"}}, call, observe({"output"})});
  const Case parsed = c.parsed();
  PlainOperations operations;
  Interpreter interpreter(operations, parsed, Data(parsed.data, 0), 0);
  interpreter.run(0);
  Module& module = *interpreter.model("model").module;
  module.add_post_forward_hook([](Tensors outputs) { return Tensors{outputs.at(0) * 10}; });
  const auto output = [&] {
    interpreter.run(1);
    return from_host(interpreter.run(2)->tensors.at("output"));
  };
  EXPECT_TRUE(at::equal(output(), at::tensor({-2.f, 4.f})));
  module.hook_method("twice");
  EXPECT_TRUE(at::equal(output(), at::tensor({-20.f, 40.f})));
  EXPECT_THROW(module.hook_method("thrice"), c10::IndexError);
}

TEST(Interpreter, TakesTheGradientOfALeafAndLeavesTheInputAlone) {
  CaseInMemory c;
  one_weight(c);
  c.steps({{{"verb", "leaf"}, {"input", "x"}, {"into", "asked"}},
           forward("asked"),
           sum,
           backward,
           {{"verb", "take_gradient"}, {"of", "asked"}, {"into", "gradient"}},
           observe({"register:gradient"})});
  EXPECT_TRUE(at::equal(Played(c).tensor("register:gradient"), at::full({2, 1}, 3.f)));  // the weight

  CaseInMemory without;
  one_weight(without);
  without.steps({{{"verb", "leaf"}, {"input", "x"}, {"into", "asked"}},
                 {{"verb", "take_gradient"}, {"of", "asked"}, {"into", "gradient"}}});
  EXPECT_THROW(Played{without}, std::invalid_argument);
}

TEST(Interpreter, LayersSayWhenTheyComputeAndTheVerbInWhichPhase) {
  CaseInMemory c;
  one_weight(c);
  c.steps({forward(), sum, backward, observe({"trace"})});
  EXPECT_EQ(Played(c).entry("trace")["events"],
            Json::parse(R"([{"op": "compute", "unit": "", "phase": "forward"},
                            {"op": "compute", "unit": "", "phase": "backward"}])"));
}

TEST(Interpreter, WhatWaitsForALayerIsDoneOnceInItsPassAndAnErrorGoesUpThroughIt) {
  const auto meanwhile = [](const char* pass, const char* what) {
    return Json{{"verb", "meanwhile"}, {"pass", pass}, {"module", ""}, {"do", what}, {"model", "model"}};
  };
  CaseInMemory c;
  one_weight(c);
  c.steps({meanwhile("backward", "state_dict"),
           meanwhile("forward", "state_dict"),
           forward(),
           forward(),
           sum,
           backward,
           observe({"gradients"}),
           meanwhile("backward", "summon"),
           forward(),
           sum,
           {{"verb", "attempt_begin"}, {"name", "inside"}},
           backward,
           {{"verb", "attempt_end"}, {"name", "inside"}}});
  const Played run(c);
  EXPECT_THAT(run.operations.state_dicts, testing::ElementsAre("forward", "backward"));
  EXPECT_EQ(run.tensor("gradients").item<float>(), 3);
  const Json error = run.entry("attempt")["error"];
  EXPECT_EQ(error["type"], "AssertionError");
  EXPECT_EQ(error["message"], "not in backward");
  EXPECT_EQ(error["verb"], "backward");
}

TEST(Trace, ATapNotesInThePhaseOfTheVerbAndNothingWhileTheObserverIsAtWork) {
  Trace trace;
  trace.enter("backward");
  trace.collective({"reduce_scatter", "float32", "avg", 4, 2, {0, 1}, "0"});
  trace.enter(std::nullopt);
  trace.collective({"all_gather", "float32", std::nullopt, 2, 4, {0, 1}, "0"});
  EXPECT_EQ(trace.drain(), Json::parse(R"([{"op": "reduce_scatter", "dtype": "float32", "reduce_op": "avg",
      "in_numel": 4, "out_numel": 2, "group": [0, 1], "unit": "0", "phase": "backward"}])"));
  EXPECT_TRUE(trace.drain().empty());
}

TEST(Interpreter, AbsentGradientsAreNamed) {
  CaseInMemory c;
  one_weight(c);
  c.steps({observe({"gradients"})});
  const Json item = Played(c).entry("gradients")["items"][0];
  EXPECT_TRUE(item["none"]);
  EXPECT_EQ(item["dtype"], "float32");
  EXPECT_TRUE(item["pieces"].empty());
}

TEST(Interpreter, LossesOfEveryKind) {
  CaseInMemory c;
  c.model({{"type", "Identity"}, {"class", "Identity"}});
  c.input("x", at::tensor({1.f, 3.f}).view({1, 2}))
      .input("t", at::tensor({2.f, 1.f}).view({1, 2}))
      .input("class", at::ones({1}, at::kLong));
  c.steps({{{"verb", "build"}, {"model", "model"}, {"device", "cpu"}}, forward()});
  const auto loss = [](const std::string& kind, const std::string& with, const std::string& into) {
    return Json{{"verb", "loss"}, {"kind", kind}, {"of", {"output"}}, {"with", with}, {"into", into}};
  };
  c.steps({loss("dot", "t", "dot"),
           loss("mse", "t", "mse"),
           loss("cross_entropy", "class", "entropy"),
           {{"verb", "loss"}, {"kind", "sum"}, {"of", {"output", "output"}}, {"into", "twice"}},
           observe({"register:dot", "register:mse", "register:entropy", "register:twice"})});
  const Played run(c);
  EXPECT_EQ(run.tensor("register:dot").item<float>(), 1 * 2 + 3 * 1);
  EXPECT_EQ(run.tensor("register:mse").item<float>(), (1 + 4) / 2.f);
  EXPECT_NEAR(run.tensor("register:entropy").item<float>(), std::log(1 + std::exp(-2.0)), 1e-6);
  EXPECT_EQ(run.tensor("register:twice").item<float>(), 8);
}

TEST(Interpreter, ChunksAndNoGradAndOtherRanksSteps) {
  CaseInMemory c;
  one_weight(c);
  Json chunk = forward(), elsewhere = forward();
  chunk["chunk"] = {1, 2};
  elsewhere["ranks"] = {1};
  c.steps({{{"verb", "enter"}, {"scope", "no_grad"}},
           chunk,
           {{"verb", "leave"}, {"scope", "no_grad"}},
           elsewhere,
           observe({"output"})});
  const Played run(c);
  EXPECT_EQ(run.tensor("output").item<float>(), 6);  // of the second half of x only
  EXPECT_EQ(run.ran, (std::vector<int>{0, 1, 2, 3, 5}));
}

TEST(Interpreter, AnErrorEndsItsAttemptAndNothingElse) {
  CaseInMemory c;
  one_weight(c);
  c.input("wrong", at::ones({1, 7}));
  c.steps({{{"verb", "attempt_begin"}, {"name", "outer"}},
           {{"verb", "enter"}, {"scope", "no_grad"}},
           forward("wrong"),
           {{"verb", "attempt_begin"}, {"name", "inner"}},
           {{"verb", "attempt_end"}, {"name", "inner"}},
           {{"verb", "leave"}, {"scope", "no_grad"}},
           {{"verb", "attempt_end"}, {"name", "outer"}},
           forward(),
           sum,
           backward,
           observe({"gradients"})});
  const Played run(c);
  ASSERT_EQ(run.observations.size(), 2u);
  const Json attempt = run.observations[0].entries[0];
  EXPECT_EQ(attempt["name"], "outer");
  EXPECT_EQ(attempt["error"]["type"], "RuntimeError");
  EXPECT_EQ(attempt["error"]["phase"], "forward");
  EXPECT_EQ(attempt["error"]["step"], 3);
  EXPECT_EQ(attempt["error"]["verb"], "forward");
  EXPECT_THAT(attempt["error"]["message"].get<std::string>(),
              testing::HasSubstr("shapes cannot be multiplied"));
  EXPECT_EQ(run.tensor("gradients").item<float>(), 3);  // no_grad ended with the attempt
}

TEST(Interpreter, AnAttemptWithoutAnErrorSaysNull) {
  CaseInMemory c;
  one_weight(c);
  c.steps({{{"verb", "attempt_begin"}, {"name", "a"}}, forward(), {{"verb", "attempt_end"}, {"name", "a"}}});
  EXPECT_TRUE(Played(c).entry("attempt")["error"].is_null());
}

TEST(Interpreter, OutsideAnAttemptErrorsComeOut) {
  CaseInMemory c;
  one_weight(c);
  c.steps({forward("nowhere")});
  EXPECT_THROW(Played{c}, std::invalid_argument);
}

TEST(Interpreter, MutatesValuesAndGradients) {
  const auto after = [](const Json& mutation) {
    CaseInMemory c;
    one_weight(c);
    Json step = {{"verb", "mutate"}, {"parameter", "weight"}, {"model", "model"}};
    step.update(mutation);
    c.input("four", at::full({1, 1}, 4.f));
    c.steps({forward(), sum, backward, observe({"identity"}), step,
             observe({"parameters", "gradients", "identity"})});
    return Played(c);
  };
  for (const char* how : {"inplace", "data", "replace"}) {
    const Played run = after({{"what", "value"}, {"how", how}, {"fill", 2}});
    EXPECT_EQ(run.tensor("parameters").item<float>(), 2) << how;
    const bool same = run.observations[0].entries[0]["values"] == run.observations[1].entries[2]["values"];
    EXPECT_EQ(same, std::string(how) != "replace") << how;
  }
  EXPECT_EQ(after({{"what", "value"}, {"how", "data"}, {"from", "four"}}).tensor("parameters").item<float>(),
            4);
  EXPECT_EQ(after({{"what", "value"}, {"how", "data"}}).tensor("parameters").item<float>(),
            3);  // a copy of itself
  EXPECT_EQ(after({{"what", "grad"}, {"how", "inplace"}, {"fill", 5}}).tensor("gradients").item<float>(), 5);
  EXPECT_TRUE(after({{"what", "grad"}, {"how", "none"}}).entry("gradients")["items"][0]["none"]);
  const Json grown =
      after({{"what", "value"}, {"how", "replace"}, {"fill", 2}, {"grow", 1}}).entry("parameters");
  EXPECT_EQ(grown["items"][0]["global_shape"], Json({2, 2}));
}

TEST(Interpreter, SavesZeroesAndLoads) {
  CaseInMemory c;
  one_weight(c);
  c.steps({{{"verb", "state_dict"}, {"as", "saved"}, {"model", "model"}, {"kind", "full"}},
           {{"verb", "zero_parameters"}, {"model", "model"}},
           observe({"full_parameters"}),
           {{"verb", "load_state_dict"}, {"from", "saved"}, {"model", "model"}},
           observe({"parameters", "state_dict:saved"})});
  const Played run(c);
  EXPECT_EQ(run.tensor("full_parameters").item<float>(), 0);
  EXPECT_EQ(run.tensor("parameters").item<float>(), 3);
  EXPECT_EQ(run.tensor("state_dict:saved").item<float>(), 3);
}

TEST(Interpreter, AStateDictOfAPartHasNamesRelativeToIt) {
  CaseInMemory c;
  two_weights(c, 2, 3);
  c.steps({{{"verb", "build"}, {"model", "model"}, {"device", "host"}},
           {{"verb", "move"}, {"model", "model"}},
           {{"verb", "state_dict"}, {"as", "saved"}, {"model", "model"}, {"module", "1"}, {"kind", "full"}},
           {{"verb", "load_state_dict"}, {"from", "saved"}, {"model", "model"}, {"module", "0"}},
           observe({"parameters", "state_dict:saved"})});
  const Played run(c);
  ASSERT_EQ(run.entry("state_dict:saved")["items"].size(), 1u);
  EXPECT_EQ(run.entry("state_dict:saved")["items"][0]["name"], "weight");
  EXPECT_EQ(run.tensor("parameters", 0).item<float>(), 3);
}

TEST(Interpreter, AStateDictForTheFirstRankAlone) {
  CaseInMemory c;
  one_weight(c);
  c.steps(
      {{{"verb", "state_dict"}, {"as", "saved"}, {"model", "model"}, {"kind", "full"}, {"rank0_only", true}},
       observe({"state_dict:saved", "devices:saved"})});
  EXPECT_EQ(Played(c).entry("devices:saved")["values"], Json({{"weight", "cpu"}}));
  const Played other(c, 1);
  EXPECT_EQ(other.entry("devices:saved")["values"], Json::object());
  EXPECT_TRUE(other.entry("state_dict:saved")["items"].empty());
}

TEST(Interpreter, AStateDictHasATiedParameterUnderEachName) {
  CaseInMemory c;
  c.model({{"type", "Sequential"},
           {"class", "Sequential"},
           {"tie", Json::array({Json::array({"1.weight", "0.weight"})})},
           {"children",
            Json::array({Json::array({"0", linear(1, 1, false)}), Json::array({"1", linear(1, 1, false)})})}})
      .parameter("0.weight", at::full({1, 1}, 3.f));
  c.steps({{{"verb", "build"}, {"model", "model"}, {"device", "host"}},
           {{"verb", "move"}, {"model", "model"}},
           {{"verb", "state_dict"}, {"as", "saved"}, {"model", "model"}, {"kind", "full"}},
           observe({"parameters", "state_dict:saved"})});
  const Played run(c);
  EXPECT_EQ(run.entry("parameters")["items"].size(), 1u);
  ASSERT_EQ(run.entry("state_dict:saved")["items"].size(), 2u);
  EXPECT_EQ(run.entry("state_dict:saved")["items"][1]["name"], "1.weight");
  EXPECT_EQ(run.tensor("state_dict:saved", 1).item<float>(), 3);
}

TEST(Interpreter, WarningsOfTheTensorLibraryLandInTheCase) {
  class Warns : public PlainOperations {
    void shard(Model&) override { TORCH_WARN("careful"); }
  } operations;
  CaseInMemory c;
  one_weight(c);
  c.steps({{{"verb", "shard"}, {"model", "model"}}, observe({"warnings"}), observe({"warnings"})});
  const Case a_case = c.parsed();
  Interpreter interpreter(operations, a_case, Data(a_case.data, 0), 0);
  interpreter.run(0);
  interpreter.run(1);
  const Json first = interpreter.run(2)->entries[0]["warnings"];
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0]["category"], "UserWarning");
  EXPECT_THAT(first[0]["message"].get<std::string>(), testing::HasSubstr("careful"));
  EXPECT_TRUE(interpreter.run(3)->entries[0]["warnings"].empty());
}

TEST(Interpreter, WarningsAndATesteesOwnErrorsQuoteBytesThatAreNoText) {
  class Quotes : public PlainOperations {
    void shard(Model&) override { TORCH_WARN("read \xff"); }
    std::optional<ErrorReport> describe(std::exception_ptr) const override {
      return ErrorReport{"ValueError", "read \xfe", {}};
    }
  } operations;
  CaseInMemory c;
  one_weight(c);
  c.steps({{{"verb", "shard"}, {"model", "model"}}, observe({"warnings"})});
  const Case a_case = c.parsed();
  Interpreter interpreter(operations, a_case, Data(a_case.data, 0), 0);
  interpreter.run(0);
  interpreter.run(1);
  const Json warning = interpreter.run(2)->entries[0]["warnings"][0];
  EXPECT_THAT(warning["message"].get<std::string>(), testing::HasSubstr("read \xef\xbf\xbd"));
  EXPECT_EQ(interpreter.describe(std::make_exception_ptr(1)).message, "read \xef\xbf\xbd");
}

TEST(Interpreter, ClipsToTheNorm) {
  CaseInMemory c;
  one_weight(c);
  c.steps({forward(),
           sum,
           backward,
           {{"verb", "clip_grad_norm"},
            {"max_norm", 1.5},
            {"norm_type", 2.0},
            {"model", "model"},
            {"into", "norm"}},
           observe({"register:norm", "gradients"})});
  const Played run(c);
  EXPECT_EQ(run.tensor("register:norm").item<float>(), 3);
  EXPECT_NEAR(run.tensor("gradients").item<float>(), 1.5, 1e-5);
}

TEST(Interpreter, ClipsToTheGreatestElement) {
  CaseInMemory c;
  one_weight(c);
  c.steps({forward(),
           sum,
           backward,
           {{"verb", "clip_grad_norm"}, {"max_norm", 1.5}, {"norm_type", "inf"}, {"into", "norm"}},
           observe({"register:norm"})});
  EXPECT_EQ(Played(c).tensor("register:norm").item<float>(), 3);
}

// y = (x, relu(x)).
void two_outputs(CaseInMemory& c, const Json& into) {
  c.model({{"type", "Graph"},
           {"class", "Graph"},
           {"inputs", {"x"}},
           {"forward", Json::array({{{"relu", "x"}, {"to", "y"}}})},
           {"output", {"x", "y"}},
           {"children", Json::array()}})
      .input("x", at::tensor({-1.f, 2.f}));
  c.steps({{{"verb", "build"}, {"model", "model"}, {"device", "cpu"}},
           {{"verb", "forward"}, {"input", {"x"}}, {"model", "model"}, {"output", into}}});
}

TEST(Interpreter, SeveralOutputsGoByTheirNames) {
  CaseInMemory c;
  two_outputs(c, {"a", "b"});
  c.steps({observe({"register:a", "register:b"})});
  const Played run(c);
  EXPECT_EQ(run.tensor("register:a")[0].item<float>(), -1);
  EXPECT_EQ(run.tensor("register:b")[0].item<float>(), 0);
}

TEST(Interpreter, SeveralOutputsUnderOneNameAreNoTensor) {
  for (const Json& use : {observe({"output"}), sum}) {
    CaseInMemory c;
    two_outputs(c, "output");
    c.steps({use});
    try {
      Played run(c);
      ADD_FAILURE() << use << " took one of them";
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("\"output\" holds 2 tensors; give each output"));
    }
  }
  CaseInMemory c;
  two_outputs(c, {"a"});
  EXPECT_THROW(Played{c}, std::invalid_argument);
}

TEST(Interpreter, APartOfTheModelIsCalledByItsPath) {
  CaseInMemory c;
  two_weights(c, 3, 5);
  c.input("x", at::full({1, 1}, 2.f));
  Json part = forward();
  part["module"] = "1";
  c.steps({{{"verb", "build"}, {"model", "model"}, {"device", "cpu"}}, part, observe({"output"})});
  EXPECT_EQ(Played(c).tensor("output").item<float>(), 10);
}

TEST(Interpreter, ACastModelHasTheValuesInTheNewDtype) {
  CaseInMemory c;
  one_weight(c);
  c.steps({{{"verb", "cast"}, {"model", "model"}, {"dtype", "float64"}}, observe({"parameters"})});
  const at::Tensor weight = Played(c).tensor("parameters");
  EXPECT_EQ(weight.scalar_type(), at::kDouble);
  EXPECT_EQ(weight.item<double>(), 3);
}

TEST(Interpreter, AnotherOptimizerGoesOnWhereTheSavedOneWas) {
  const auto adam = [](const char* name) {
    return Json{{"verb", "optimizer"}, {"as", name}, {"model", "model"}, {"kind", "Adam"}, {"lr", 0.5}};
  };
  const auto step = [](const char* name) { return Json{{"verb", "step"}, {"optimizer", name}}; };
  CaseInMemory c;
  one_weight(c);
  c.steps({adam("first"),
           forward(),
           sum,
           backward,
           step("first"),
           step("first"),
           {{"verb", "optimizer_state_dict"}, {"as", "kept"}, {"optimizer", "first"}, {"kind", "full"}},
           {{"verb", "state_dict"}, {"as", "weights"}, {"model", "model"}, {"kind", "full"}},
           step("first"),
           observe({"parameters", "state_dict:kept"}),
           {{"verb", "load_state_dict"}, {"from", "weights"}, {"model", "model"}},
           adam("second"),
           {{"verb", "load_optimizer_state_dict"}, {"from", "kept"}, {"optimizer", "second"}},
           step("second"),
           observe({"parameters"})});
  const Played run(c);
  ASSERT_EQ(run.observations.size(), 2u);
  const auto weight = [&](std::size_t at) {
    return from_host(run.observations[at].tensors.at("parameters/model/weight")).item<float>();
  };
  EXPECT_EQ(weight(0), weight(1));
  EXPECT_EQ(run.entry("state_dict:kept")["items"][0]["name"], "weight/exp_avg");
}

TEST(Interpreter, StateDictsThatTheFirstRankBroadcasts) {
  CaseInMemory c;
  one_weight(c);
  c.steps({{{"verb", "state_dict"}, {"as", "weights"}, {"model", "model"}, {"kind", "full"}},
           {{"verb", "load_state_dict"}, {"from", "weights"}, {"model", "model"}},
           {{"verb", "load_state_dict"},
            {"from", "weights"},
            {"model", "model"},
            {"broadcast_from_rank0", true}}});
  EXPECT_THAT(Played(c).operations.broadcast, testing::ElementsAre(1));
}

TEST(Interpreter, CheckpointsLieInTheFoldersOfTheCase) {
  CaseInMemory c;
  one_weight(c);
  c.set("checkpoints", {{"save", "mine"}, {"load", "before"}});
  c.steps({{{"verb", "optimizer"}, {"as", "o"}, {"model", "model"}, {"kind", "SGD"}, {"lr", 0.5}},
           {{"verb", "load_checkpoint"},
            {"format", "native"},
            {"model", "model"},
            {"optimizer", "o"},
            {"like", "model"},
            {"optimizer_like", "o"}},
           {{"verb", "save_checkpoint"}, {"format", "safetensors"}, {"model", "model"}}});
  EXPECT_THAT(Played(c).operations.checkpoints,
              testing::ElementsAre("load native before model with optimizer like model like optimizer",
                                   "save safetensors mine model"));
}

TEST(Interpreter, ManyTensorsAtOnceEmptyOnesAmongThem) {
  CaseInMemory c;
  one_weight(c);
  c.input("nothing", at::empty({0}));
  c.steps(
      {{{"verb", "foreach_mul"}, {"of", {"nothing", "x"}}, {"copies", 3}, {"by", 0.5}, {"into", "product"}},
       observe({"register:product"})});
  const at::Tensor product = Played(c).tensor("register:product");
  EXPECT_EQ(product.sizes(), at::IntArrayRef({6}));
  for (std::int64_t copy = 0; copy < 3; ++copy) {
    EXPECT_EQ(product[2 * copy].item<float>(), 0.5f);
    EXPECT_EQ(product[2 * copy + 1].item<float>(), 1.0f);
  }
}

/// What is observed of the parameters that `operations` exposes.
Observation observed_parameters(PlainOperations& operations) {
  CaseInMemory c;
  one_weight(c);
  c.steps({observe({"parameters"})});
  const Case a_case = c.parsed();
  Interpreter interpreter(operations, a_case, Data(a_case.data, 0), 0);
  interpreter.run(0);
  return *interpreter.run(1);
}

TEST(Interpreter, ShardsAreHandedOverPieceByPiece) {
  // Columns 1 and 2 of a 2 x 3 tensor: two stretches of the row-major whole, and one element of padding
  // behind.
  class Sharded : public PlainOperations {
    std::vector<Parameter> parameters(Model&) override {
      Placement placement = slice({2, 3}, 1, 1, 2);
      placement.padding = 1;
      return {{"p", at::arange(5, at::kFloat), placement, {}, placement}};
    }
  } operations;
  const Observation observation = observed_parameters(operations);
  const Json pieces = observation.entries[0]["items"][0]["pieces"];
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0]["offset"], 1);
  EXPECT_EQ(pieces[1]["offset"], 4);
  EXPECT_EQ(pieces[1]["length"], 2);
  EXPECT_EQ(pieces[1]["padding"], 1);
  EXPECT_EQ(observation.tensors.at(pieces[1]["tensor"]).shape, (std::vector<std::int64_t>{3}));
  EXPECT_FALSE(observation.entries[0]["items"][0].contains("contiguous"));
}

TEST(Interpreter, ColumnsOfAWholeAreSaidNotToBeContiguous) {
  class Window : public PlainOperations {
    std::vector<Parameter> parameters(Model&) override {
      const Placement columns = slice({2, 3}, 1, 1, 2);
      return {{"p", at::arange(6, at::kFloat).view({2, 3}).narrow(1, 1, 2), columns, {}, columns}};
    }
  } operations;
  EXPECT_EQ(observed_parameters(operations).entries[0]["items"][0]["contiguous"], false);
}

TEST(Placement, FlatAndSliceNameTheirStretches) {
  EXPECT_TRUE(flat({4}, 2, 0).extents.empty());
  const Placement rows = slice({5, 2}, 0, 3, 2);
  ASSERT_EQ(rows.extents.size(), 1u);
  EXPECT_EQ(rows.extents[0].offset, 6);
  EXPECT_EQ(rows.extents[0].length, 4);
  EXPECT_EQ(whole({2, 3}).extents[0].length, 6);
}

}  // namespace
}  // namespace fsdp_cts::sdk
