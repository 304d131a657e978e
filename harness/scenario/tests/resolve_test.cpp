// What a testee gets: axes expanded, modules and programs resolved, twins patched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/scenario/resolve/module_state.hpp"
#include "harness/scenario/tests/conformance_folder.hpp"

namespace fsdp_cts {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> ids(const std::vector<Case>& cases) {
  std::vector<std::string> result;
  for (const Case& a_case : cases) result.push_back(a_case.id.substr(a_case.id.find("test_method") + 11));
  return result;
}

std::vector<Case> cases_of(const std::string& text) {
  const ConformanceFolder folder;
  folder.scenario(text);
  return folder.load();
}

std::vector<std::string> verbs(const Case& a_case) {
  std::vector<std::string> result;
  for (const Json& step : a_case.program) result.push_back(step["verb"]);
  return result;
}

TEST(Axes, FirstAxisOutermostWorldInnermost) {
  EXPECT_THAT(ids(cases_of(with_line(6, "  flag: [true, null]\n  n: [1, 0.5]"))),
              ElementsAre("[flag=true,n=1,world=2]", "[flag=true,n=0.5,world=2]", "[flag=null,n=1,world=2]",
                          "[flag=null,n=0.5,world=2]"));
  EXPECT_THAT(ids(cases_of(with_line(7, "worlds: [2, 4]"))),
              ElementsAre("[flag=true,world=2]", "[flag=true,world=4]", "[flag=false,world=2]",
                          "[flag=false,world=4]"));
}

TEST(Axes, BundlesNameTheirVariables) {
  std::string text =
      with_line(6, "  flag: [true]\n  size: {small: {width: 3}, big: {width: \"${world * 4}\"}}");
  text.replace(text.find("dim: 4"), 6, "dim: ${width}");
  const auto cases = cases_of(text);
  EXPECT_THAT(ids(cases), ElementsAre("[flag=true,size=small,world=2]", "[flag=true,size=big,world=2]"));
  EXPECT_EQ(cases[0].models["model"]["children"][0][1]["in"], 3);
  EXPECT_EQ(cases[1].models["model"]["children"][0][1]["in"], 8);
}

TEST(Axes, SeedCasesCountTheUpstreamCombinationsOnly) {
  const auto cases = cases_of(with_line(7, "additional_axes: {device: [cpu, gpu]}\nworlds: [2, 4]"));
  EXPECT_EQ(cases.size(), 8u);
  for (const Case& a_case : cases)
    EXPECT_EQ(a_case.seed_cases, a_case.axes.at("device") == "cpu" ? 1 : 0) << a_case.id;
}

TEST(Axes, QuickIsTheFirstOfEverythingUnlessSaid) {
  const auto quick = [](const std::string& text) {
    std::vector<std::string> result;
    for (const Case& a_case : cases_of(text))
      if (a_case.quick) result.push_back(a_case.id.substr(a_case.id.find('[')));
    return result;
  };
  EXPECT_THAT(quick(with_line(7, "worlds: [4, 2]")), ElementsAre("[flag=true,world=2]"));
  EXPECT_THAT(quick(with_line(7, "worlds: [4, 2]\nquick: [{flag: false}, {world: 4}]")),
              ElementsAre("[flag=true,world=4]", "[flag=false,world=2]"));
}

TEST(Skip, IsStillACaseWithItsReason) {
  const auto cases = cases_of(with_line(7, "worlds: [2]\nskip: [{when: \"!flag\", reason: \"no ${dim}\"}]"));
  ASSERT_EQ(cases.size(), 2u);
  EXPECT_FALSE(cases[0].skip_reason);
  EXPECT_EQ(cases[1].skip_reason, "no 4");
  EXPECT_EQ(cases[1].seed_cases, 1);
}

TEST(Requires, MayDependOnTheAxes) {
  const auto cases = cases_of(with_line(7, "worlds: [2]\nrequires: [compiler, {gpu: flag}]"));
  EXPECT_THAT(cases[0].requires_, ElementsAre("compiler", "gpu"));
  EXPECT_THAT(cases[1].requires_, ElementsAre("compiler"));
}

TEST(Twins, PatchTheFileAndStandForNoSeedCase) {
  const auto cases =
      cases_of(std::string(sound_scenario) +
               "twins:\n  exact:\n    why: Bits.\n    lane: exact\n    axes: {flag: [false]}\n    let: {dim: "
               "8}\n    data: {inputs: {x: null, y: {shape: [2, \"${dim}\"]}}}\n"
               "    program: [{build: model}, {forward: y}, {loss: sum}, {observe: loss}]\n");
  ASSERT_EQ(ids(cases), (std::vector<std::string>{"[flag=true,world=2]", "[flag=false,world=2]",
                                                  "#exact[flag=false,world=2]"}));
  const Case& twin = cases[2];
  EXPECT_EQ(twin.scenario, "F2MP/Class/test_method#exact");
  EXPECT_EQ(twin.method, "F2MP/Class/test_method");
  EXPECT_EQ(twin.lane, Lane::exact);
  EXPECT_EQ(twin.seed_cases, 0);
  EXPECT_EQ(twin.why, "Bits.");
  EXPECT_EQ(twin.data["inputs"].size(), 1u);
  EXPECT_EQ(twin.models["model"]["children"][0][1]["in"], 8);
  EXPECT_EQ(twin.expect[0]["equal"]["tolerance"], "exact");
  EXPECT_EQ(cases[0].expect[0]["equal"]["tolerance"], "upstream");
}

TEST(Axes, WhereLeavesCombinationsOut) {
  const auto cases = cases_of(with_line(7, "worlds: [2, 4]\nwhere: \"flag || world == 2\""));
  EXPECT_THAT(ids(cases), ElementsAre("[flag=true,world=2]", "[flag=true,world=4]", "[flag=false,world=2]"));
}

TEST(Twins, MayStandForTheUpstreamCasesThatTheFileLeavesOut) {
  const auto cases =
      cases_of(with_line(7, "worlds: [2]\nwhere: flag") +
               "twins:\n  other:\n    why: Different.\n    of_seed: true\n    where: \"!flag\"\n");
  ASSERT_EQ(ids(cases), (std::vector<std::string>{"[flag=true,world=2]", "#other[flag=false,world=2]"}));
  EXPECT_EQ(cases[1].seed_cases, 1);
}

TEST(OfSeed, NamesTheCasesThatAreUpstreams) {
  const auto cases = cases_of(
      with_line(
          7, "worlds: [2]\nadditional_axes: {device: [cpu, gpu]}\nof_seed: \"flag == (device == 'gpu')\"") +
      "twins:\n  other:\n    why: Different.\n");
  std::vector<std::string> counted;
  for (const Case& a_case : cases)
    if (a_case.seed_cases) counted.push_back(a_case.id.substr(a_case.id.find_first_of("#[")));
  EXPECT_THAT(counted, ElementsAre("[flag=true,device=gpu,world=2]", "[flag=false,device=cpu,world=2]"));
}

TEST(Continues, NamesTheCaseWhoseCheckpointIsLoaded) {
  const auto cases = cases_of(
      with_line(7, "worlds: [2, 4]\ncontinues: {when: \"!flag\", flag: true, world: \"${6 - world}\"}"));
  std::vector<std::string> before;
  for (const Case& each : cases) before.push_back(each.continues);
  const std::string scenario = "F2MP/Class/test_method";
  EXPECT_THAT(before,
              ElementsAre("", "", scenario + "[flag=true,world=4]", scenario + "[flag=true,world=2]"));
}

TEST(Continues, SaysWhatBefallsTheCopyOfTheCheckpoint) {
  const auto cases = cases_of(with_line(7,
                                        "worlds: [2]\ncontinues: {when: \"!flag\", flag: true, damage: "
                                        "{file: largest, how: \"${flag ? 'removed' : 'truncated'}\"}}"));
  ASSERT_EQ(cases.size(), 2u);
  EXPECT_FALSE(cases[0].damage);
  ASSERT_TRUE(cases[1].damage);
  EXPECT_EQ(cases[1].damage->file, "largest");
  EXPECT_EQ(cases[1].damage->how, "truncated");
  Case whole = cases[1];
  whole.damage.reset();
  EXPECT_NE(fingerprint(cases[1]), fingerprint(whole));
}

TEST(CpuForm, SaysWhatIsDoneInstead) {
  const auto cases =
      cases_of(with_line(7, "worlds: [2]\ncpu_form: [{text: slower}, {when: flag, text: nearer}]"));
  EXPECT_EQ(cases[0].cpu_form, "slower; nearer");
  EXPECT_EQ(cases[1].cpu_form, "slower");
}

TEST(Program, BlocksBecomeAStraightLine) {
  const Case a_case = first_case(with_line(30,
                                           "  - repeat: 2\n    do:\n      - within: {scope: summon, recurse: "
                                           "false}\n        do: [{delay: 1, when: iteration == 1}]\n"
                                           "      - repeat: 2\n        as: micro\n        do: [{forward: "
                                           "{input: x, chunk: [\"${micro}\", 2]}, label: \"m${micro}\"}]\n"
                                           "  - {attempt: try, do: [{forward: x}]}"));
  EXPECT_THAT(verbs(a_case), ElementsAre("build", "shard", "enter", "leave", "forward", "forward", "enter",
                                         "delay", "leave", "forward", "forward", "attempt_begin", "forward",
                                         "attempt_end", "loss", "observe"));
  const Json& program = a_case.program;
  EXPECT_EQ(
      program[2],
      Json::parse(
          R"({"verb":"enter","scope":"summon","model":"model","writeback":true,"rank0_only":false,"recurse":false,
                                        "with_grads":false,"offload_to_cpu":false,"line":32,"iteration":0})"));
  EXPECT_EQ(
      program[10],
      Json::parse(
          R"({"verb":"forward","input":["x"],"model":"model","output":"output","chunk":[1,2],"grad":true,
                                         "label":"m1","line":36,"iteration":1})"));
  EXPECT_EQ(program[11]["name"], "try");
  EXPECT_FALSE(program[11].contains("iteration"));
}

TEST(Program, MainArgumentsAndDefaultsAreFilledIn) {
  const Case a_case = first_case(with_line(
      31,
      "  - optimizer: {kind: Adam, lr: 0.1}\n  - zero_grad: {}\n  - zero_grad: {model: model}\n  - loss: "
      "sum\n  - backward:\n"
      "  - step: optimizer\n  - mode: eval\n  - set_requires_gradient_sync: false\n  - unshard: \"0\""));
  const Json& program = a_case.program;
  EXPECT_EQ(
      program[3],
      Json::parse(
          R"({"verb":"optimizer","as":"optimizer","model":"model","kind":"Adam","lr":0.1,"betas":[0.9,0.999],"eps":1e-8,
                                        "weight_decay":0.0,"line":31})"));
  EXPECT_EQ(program[4]["optimizer"], "optimizer");
  EXPECT_FALSE(program[5].contains("optimizer"));
  EXPECT_EQ(program[6],
            Json::parse(R"({"verb":"loss","kind":"sum","of":["output"],"into":"loss","line":34})"));
  EXPECT_EQ(program[7]["loss"], "loss");
  EXPECT_EQ(program[9]["mode"], "eval");
  EXPECT_EQ(
      program[10],
      Json::parse(
          R"({"verb":"set_requires_gradient_sync","value":false,"model":"model","module":"","line":38})"));
  EXPECT_EQ(program[11]["module"], "0");
}

TEST(Plan, DefaultsGoIntoEveryUnitThatHasNoneOfItsOwn) {
  const Case a_case = first_case(with_line(23,
                                           "    api: fully_shard\n    reshard_after_forward: false\n    "
                                           "mixed_precision: {param_dtype: bfloat16}"));
  const Json& plan = a_case.plans["model"];
  EXPECT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan["units"][0]["reshard_after_forward"], true);
  EXPECT_EQ(plan["units"][1]["reshard_after_forward"], false);
  EXPECT_EQ(plan["units"][1]["mixed_precision"]["param_dtype"], "bfloat16");
}

TEST(Expectations, KeepTheirShapeWithDefaultsAndLine) {
  const Case a_case = first_case(
      with_line(34, "  - {equal: {what: loss}, clause: FS-1}\n  - {finite: loss, when: \"!flag\"}"));
  ASSERT_EQ(a_case.expect.size(), 1u);
  EXPECT_EQ(
      a_case.expect[0],
      Json::parse(
          R"({"equal":{"what":["loss"],"to":["reference","golden"],"check_dtype":true,"order_sensitive":false,
                                              "tolerance":"upstream"},"clause":"FS-1","line":34})"));
  EXPECT_EQ(a_case.minimum, Json::parse(R"({"elements":1})"));
}

TEST(Expectations, WhatAListLeavesOutIsAskedInEveryCase) {
  const auto cases = cases_of(with_line(34,
                                        "  - unit_tree: [{module: \"\"}, {module: \"0\", when: flag}]\n"
                                        "  - {finite: loss, when: flag}"));
  ASSERT_EQ(cases.size(), 2u);
  EXPECT_EQ(cases[0].expect[0]["unit_tree"].size(), 2u);
  EXPECT_EQ(cases[1].expect[0]["unit_tree"].size(), 1u);
  EXPECT_EQ(cases[0].expect.size(), 2u);
  EXPECT_EQ(cases[1].expect.size(), 1u);
}

TEST(Modules, ModelFilesSeeTheirParametersOnly) {
  const ConformanceFolder folder;
  folder.model("block",
               "id: block\nwhy: x\nparameters: {width: 2, depth: 1}\nmodule:\n  type: Sequential\n  class: "
               "Block\n  children:\n"
               "    - {repeat: \"${depth}\", module: {type: Linear, in: \"${width}\", out: \"${width}\", "
               "bias: false}}\n    - {type: ReLU}\n");
  folder.scenario(with_line(16, "      - {use: block, depth: \"${dim - 2}\"}"));
  const Json model = folder.load().front().models["model"];
  EXPECT_EQ(model["children"][1][1]["class"], "Block");
  EXPECT_EQ(model["children"][1][1]["children"].size(), 3u);
  EXPECT_EQ(model["children"][1][1]["children"][1],
            Json::parse(R"(["1",{"type":"Linear","class":"Linear","in":2,"out":2,"bias":false}])"));
  folder.model("nosy", "id: nosy\nwhy: x\nmodule: {type: Linear, in: \"${dim}\", out: 1}\n");
  EXPECT_THAT(folder.mistakes(), HasSubstr("models/nosy.yaml:3: unknown name 'dim'"));
  folder.model("nosy", "id: nosy\nwhy: x\nmodule: {use: nosy}\n");
  EXPECT_THAT(folder.mistakes(), HasSubstr("does a model file use itself?"));
}

TEST(ModuleState, IsInRegistrationOrderWithTiedOnesOnce) {
  const Case a_case = first_case(with_line(
      16,
      "      - type: Graph\n        inputs: [x]\n        parameters: {scale: {shape: [3]}}\n        buffers: "
      "{seen: {shape: [1]}}\n"
      "        children: {first: {type: Embedding, num: 5, dim: 4}, attention: {type: MultiheadAttention, "
      "dim: 4, heads: 2},\n"
      "                   norm: {type: BatchNorm2d, features: 4}, last: {type: Linear, in: 4, out: 5}}\n"
      "        tie: [[last.weight, first.weight]]\n        forward: [{call: norm, args: [x], to: y}]\n       "
      " output: y"));
  std::vector<std::string> names;
  for (const StateShape& state : module_state(a_case.models["model"]))
    names.push_back((state.is_buffer ? "~" : "") + state.name);
  EXPECT_THAT(names, ElementsAre("0.weight", "0.bias", "1.scale", "~1.seen", "1.first.weight",
                                 "1.attention.in_proj_weight", "1.attention.in_proj_bias",
                                 "1.attention.out_proj.weight", "1.attention.out_proj.bias", "1.norm.weight",
                                 "1.norm.bias", "~1.norm.running_mean", "~1.norm.running_var",
                                 "~1.norm.num_batches_tracked", "1.last.bias"));
  EXPECT_THAT(module_state(a_case.models["model"])[5].shape, ElementsAre(12, 4));
}

TEST(ModuleState, ATiedParameterKeepsTheNameRegisteredFirst) {
  const Case a_case = first_case(with_line(16,
                                           "      - {type: Graph, inputs: [x], children: {a: {type: Linear, "
                                           "in: 2, out: 3}, b: {type: Embedding, num: 3, dim: 2}},\n"
                                           "         tie: [[a.weight, b.weight]], forward: [], output: x}"));
  const auto states = module_state(a_case.models["model"]);
  ASSERT_EQ(states.size(), 4u);
  EXPECT_EQ(states[2].name, "1.a.weight");
  EXPECT_EQ(states[3].name, "1.a.bias");
}

struct BrokenGraph {
  const char* body;
  const char* message;
};

TEST(Graphs, ReferToWhatExists) {
  const BrokenGraph broken[] = {
      {"forward: [{relu: z, to: y}], output: y", "unknown value 'z'"},
      {"forward: [{relu: x, to: y}], output: w", "unknown value 'w'"},
      {"forward: [{cal: lin, args: [x], to: y}], output: x", "unknown graph op 'cal', did you mean 'call'?"},
      {"forward: [{call: line, args: [x], to: y}], output: x", "unknown child 'line', did you mean 'lin'?"},
      {"forward: [{call: lin, args: [x, x], to: y}], output: y", "'lin' takes 1 inputs, found 2"},
      {"forward: [{call: lin, args: [x]}], output: x", "op call lacks the key 'to'"},
      {"forward: [{buffer: b, to: y}], output: y", "unknown buffer 'b'"},
      {"forward: [{parameter: p, to: y}], output: y", "unknown parameter 'p'"},
      {"forward: [{cast: x, to: y}], output: y", "op cast needs one of 'like_weight_of' and 'dtype'"},
      {"forward: [{add: [x], to: y}], output: y", "add must have 2 elements, found 1"},
      {"forward: [], output: x, tie: [[lin.weight, lin.bias]]", "are tied but differ in shape"},
      {"forward: [], output: x, tie: [[lin.weight, emb.weight]]", "unknown parameter 'emb.weight'"},
  };
  for (const auto& [body, message] : broken) {
    const ConformanceFolder folder;
    folder.scenario(with_line(
        16,
        std::string("      - {type: Graph, inputs: [x], children: {lin: {type: Linear, in: 4, out: 4}}, ") +
            body + "}"));
    EXPECT_THAT(folder.mistakes(), HasSubstr(message)) << body;
    EXPECT_THAT(folder.mistakes(), HasSubstr("scenarios/one.yaml:16: ")) << body;
  }
}

TEST(Message, HoldsNoExpectationAndNoAxis) {
  const Json message = case_message(first_case(sound_scenario));
  std::vector<std::string> keys;
  for (const auto& [key, value] : message.items()) keys.push_back(key);
  EXPECT_THAT(keys, ElementsAre("type", "id", "world", "requires", "switches", "models", "plans", "program"));
  EXPECT_EQ(message.dump().find("${"), std::string::npos);
}

TEST(Fingerprint, ChangesWithWhatIsAnsweredAndWithNothingElse) {
  const std::string original = fingerprint(first_case(sound_scenario));
  EXPECT_EQ(original.size(), 64u);
  EXPECT_EQ(original,
            fingerprint(first_case("# a comment moves every line\n" + std::string(sound_scenario))));
  EXPECT_EQ(original, fingerprint(first_case(with_line(4, "why: Another reason."))));
  EXPECT_EQ(original, fingerprint(first_case(with_line(34, "  - finite: loss"))));
  EXPECT_EQ(original,
            fingerprint(first_case(with_line(20, "    x: {per_rank: true, shape: [2, \"${dim}\"]}"))));
  EXPECT_NE(original, fingerprint(first_case(with_line(18, "  seed: 43"))));
  EXPECT_NE(original, fingerprint(first_case(with_line(7, "worlds: [4]"))));
  EXPECT_NE(original, fingerprint(first_case(with_line(10, "  dim: 6"))));
  EXPECT_NE(
      original,
      fingerprint(first_case(with_line(26, "      - {modules: [\"\"], reshard_after_forward: false}"))));
  EXPECT_NE(original, fingerprint(first_case(with_line(31, "  - loss: sum\n  - backward: loss"))));
  EXPECT_NE(original, fingerprint(first_case(with_line(7, "worlds: [2]\nswitches: {NAME: \"1\"}"))));
}

}  // namespace
}  // namespace fsdp_cts
