// Every mistake in a scenario file has an address and says what is allowed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/scenario/tests/conformance_folder.hpp"

namespace fsdp_cts {
namespace {

using testing::HasSubstr;

struct Mistake {
  const char* name;
  int line;          // of sound_scenario
  const char* text;  // in its place
  const char* message;
};

class Loading : public testing::TestWithParam<Mistake> {};

TEST_P(Loading, Refuses) {
  const ConformanceFolder folder;
  folder.scenario(with_line(GetParam().line, GetParam().text));
  EXPECT_THAT(folder.mistakes(), HasSubstr(GetParam().message));
}

#define AT(line) "scenarios/one.yaml:" #line ": "

INSTANTIATE_TEST_SUITE_P(
    File, Loading,
    testing::Values(
        Mistake{"NoId", 1, "", AT(1) "the file lacks the key 'id'"},
        Mistake{"IdWithoutClass", 1, "id: F2MP/test", AT(1) "id must look like SEED/Class/test_method"},
        Mistake{"UnknownKey", 4, "why: x\nwarlds: [2]",
                AT(5) "unknown key 'warlds', did you mean 'worlds'?; allowed are id, source"},
        Mistake{"KeyTwice", 4, "why: x\nwhy: y", AT(5) "key 'why' occurs twice"},
        Mistake{"NoWhy", 4, "", "the file lacks the key 'why'"},
        Mistake{"SeedUnquoted", 2, "source: {seed: 000, file: x, lines: \"1\"}",
                AT(2) "source.seed must be text, found 0; quote it"},
        Mistake{"SourceKey", 2, "source: {seed: \"0\", file: x, line: \"1\"}",
                AT(2) "unknown key in source 'line', did you mean 'lines'?"},
        Mistake{"SourceOfNothing", 2, "source: {lines: \"1\"}", AT(2) "source lacks the key 'file' or 'own'"},
        Mistake{"SourceTwice", 2, "source: {own: x, file: y}",
                AT(2) "a source is upstream's (file) or our own (own), not both"},
        Mistake{"SeedWithoutLines", 2, "source: {seed: \"0\", file: x}",
                AT(2) "the source of a seed lacks the key 'lines'"},
        Mistake{"Lane", 8, "lane: exakt", AT(8) "unknown value for lane 'exakt', did you mean 'exact'?"},
        Mistake{"NoWorlds", 7, "worlds: []", AT(7) "at least one world size is needed"},
        Mistake{"WorldZero", 7, "worlds: [0, 2]", AT(7) "worlds[0] must be at least 1, found 0"},
        Mistake{"WorldTwice", 7, "worlds: [2, 2]", AT(7) "world 2 is listed twice"},
        Mistake{"WhereOfNothing", 7, "worlds: [2]\nwhere: world == 4", AT(8) "'where' leaves no combination"},
        Mistake{"QuickLeftOut", 7, "worlds: [2]\nwhere: flag\nquick: [{flag: false}]",
                AT(9) "this quick entry binds a combination that 'where' leaves out"},
        Mistake{"OfSeedInAScenario", 7, "worlds: [2]\nof_seed: true",
                AT(8) "the scenario itself is upstream's: 'of_seed' is an expression here, true for the "
                      "cases that are"},
        Mistake{"ClauseThatCannotBeEvaluated", 34,
                "  - equal: {what: [loss]}\n    clause: \"${dim ? 'FS-MP-1' : 'FS-MP-2'}\"",
                AT(35) "'?' needs true or false, found 4"},
        Mistake{"ContinuesAxis", 7, "worlds: [2]\ncontinues: {flog: true}",
                AT(8) "unknown axis in continues 'flog', did you mean 'flag'?"},
        Mistake{"ContinuesWithoutSense", 7,
                "worlds: [2]\ncontinues: {when: \"!flag\", flag: true, damage: {file: middle, how: removed}}",
                AT(8) "unknown value for continues.damage.file 'middle'; allowed are first, last, largest"},
        Mistake{"ContinuesNothing", 7, "worlds: [2]\ncontinues: {when: flag, world: 4}",
                AT(8) "F2MP/Class/test_method[flag=true,world=2] continues "
                      "F2MP/Class/test_method[flag=true,world=4], which does not exist"},
        Mistake{"ContinuesItself", 7, "worlds: [2]\ncontinues: {flag: \"${!flag}\"}",
                AT(8) "F2MP/Class/test_method[flag=true,world=2] continues itself in the end"},
        Mistake{"Requirement", 7, "worlds: [2]\nrequires: [gpus]",
                AT(8) "unknown value for requires[0] 'gpus', did you mean 'gpu'?"},
        Mistake{"Skip", 7, "worlds: [2]\nskip: [{when: flag}]", AT(8) "skip[0] lacks the key 'reason'"},
        Mistake{"NotYaml", 5, "axes: [", "not valid YAML"}),
    [](const auto& mistake) { return mistake.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Axes, Loading,
    testing::Values(
        Mistake{"Empty", 6, "  flag: []", AT(6) "axis 'flag' has no values"},
        Mistake{"ValueTwice", 6, "  flag: [true, true]", AT(6) "axis 'flag' has the value 'true' twice"},
        Mistake{"ListValue", 6, "  flag: [[1]]", AT(6) "an axis value must be a scalar"},
        Mistake{"ValueWithComma", 6, "  flag: [\"a,b\"]", AT(6) "axis value 'a,b' cannot stand in a case id"},
        Mistake{"Reserved", 6, "  world: [1]\n  flag: [true]", AT(6) "the name 'world' is taken"},
        Mistake{"NotAName", 6, "  a-b: [1]\n  flag: [true]", AT(6) "'a-b' cannot be a name"},
        Mistake{"LetShadowsAxis", 10, "  dim: 4\n  flag: 1", AT(11) "the name 'flag' is taken"},
        Mistake{"LetUnknownName", 10, "  dim: ${dom + 1}", AT(10) "unknown name 'dom'"},
        Mistake{"LetLooksAhead", 10, "  dim: ${after}\n  after: 4", AT(10) "unknown name 'after'"},
        Mistake{"BundleIsAScalar", 6, "  flag: [true]\n  kind: {a: 1}",
                AT(7) "a bundle must be a map of variables, found 1"},
        Mistake{"QuickAxis", 7, "worlds: [2]\nquick: [{flog: true}]",
                AT(8) "unknown axis in quick 'flog', did you mean 'flag'?"},
        Mistake{"QuickValue", 7, "worlds: [2]\nquick: [{flag: maybe}]",
                AT(8) "unknown value of 'flag' in quick 'maybe'"},
        Mistake{"QuickWorld", 7, "worlds: [2]\nquick: [{world: 4}]",
                AT(8) "unknown value of 'world' in quick '4'; allowed are 2"}),
    [](const auto& mistake) { return mistake.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Modules, Loading,
    testing::Values(
        Mistake{"Type", 15, "      - {type: Liner, in: 4, out: 4}",
                AT(15) "unknown module type 'Liner', did you mean 'Linear'?"},
        Mistake{"NoType", 15, "      - {in: 4, out: 4}", AT(15) "a module needs 'type' or 'use'"},
        Mistake{"Argument", 15, "      - {type: Linear, in: 4, uot: 4}",
                AT(15) "unknown key in Linear 'uot', did you mean 'out'?"},
        Mistake{"ArgumentMissing", 15, "      - {type: Linear, in: 4}", AT(15) "Linear lacks the key 'out'"},
        Mistake{"ArgumentType", 15, "      - {type: Linear, in: four, out: 4}",
                AT(15) "Linear.in must be a whole number, found 'four'"},
        Mistake{"ArgumentTypeAfterEvaluation", 15, "      - {type: Linear, in: \"${flag}\", out: 4}",
                AT(15) "Linear.in must be a whole number, found true"},
        Mistake{"Use", 15, "      - {use: mlq}", AT(15) "unknown model file 'mlq'; none is allowed"},
        Mistake{"NoChildren", 16, "      - {type: Sequential}", AT(16) "Sequential lacks 'children'"},
        Mistake{"ChildrenOfALeaf", 16, "      - {type: ReLU, children: []}", AT(16) "ReLU has no children"},
        Mistake{"Repeat", 16, "      - {repeat: -1, module: {type: ReLU}}",
                AT(16) "repeat must be a whole number from 0"},
        Mistake{"ChildName", 16, "      - {type: ModuleDict, children: {a.b: {type: ReLU}}}",
                AT(16) "a child's name must not be empty or hold a dot"}),
    [](const auto& mistake) { return mistake.param.name; });

INSTANTIATE_TEST_SUITE_P(
    DataAndPlans, Loading,
    testing::Values(
        Mistake{"NoSeed", 18, "", "data lacks the key 'seed'"},
        Mistake{"Formula", 18, "  seed: 1\n  formula: random",
                AT(19) "unknown value for data.formula 'random'"},
        Mistake{"DyadicWithoutUnit", 18, "  seed: 1\n  formula: dyadic\n  levels: 2",
                "the dyadic formula needs 'unit'"},
        Mistake{"DyadicWithScale", 20, "    x: {shape: [4], formula: dyadic, levels: 2, unit: 1, scale: 2}",
                AT(20) "data.inputs.x: 'scale' belongs to the ordinary formula"},
        Mistake{"Dtype", 20, "    x: {shape: [4], dtype: bf16}",
                AT(20) "unknown value for data.inputs.x.dtype 'bf16'"},
        Mistake{"Shape", 20, "    x: {shape: 4}", AT(20) "data.inputs.x.shape must be a list, found 4"},
        Mistake{"IntegerFormula", 20, "    x: {shape: [4], dtype: int64}",
                AT(20) "data.inputs.x: the formula of an integer dtype needs 'modulo'"},
        Mistake{"FullWithoutValue", 20, "    x: {shape: [4], kind: full}",
                AT(20) "data.inputs.x: kind full needs 'value'"},
        Mistake{"InputName", 20, "    x@0: {shape: [4]}\n    x: {shape: [4]}",
                AT(20) "an input's name must not hold '@' or '/'"},
        Mistake{"PlanOfNothing", 22,
                "  other:", AT(22) "a plan for 'other', which is no instance under models"},
        Mistake{"Api", 23, "    api: fully_shart",
                AT(23) "unknown value for plan.api 'fully_shart', did you mean 'fully_shard'?"},
        Mistake{"PlanKey", 23, "    api: fully_shard\n    reshard: true",
                AT(24) "unknown key in plan 'reshard'"},
        Mistake{"PlanKeyOfTheOtherApi", 23, "    api: fully_shard\n    use_orig_params: true",
                AT(24) "unknown key in plan 'use_orig_params'"},
        Mistake{"UnitKey", 26, "      - {module: [\"\"]}",
                AT(26) "unknown key in unit 'module', did you mean 'modules'?"},
        Mistake{"UnitModule", 26, "      - {modules: [\"7\"]}", "unknown module in the plan of 'model' '7'"},
        Mistake{"ReshardDoesNotDivide", 26, "      - {modules: [\"\"], reshard_after_forward: 3}",
                "reshard_after_forward 3 does not divide the shard group of 2"},
        Mistake{"ReshardToNobody", 26, "      - {modules: [\"\"], reshard_after_forward: 0}",
                "reshard_after_forward 0 does not divide the shard group of 2"},
        Mistake{"Mesh", 23, "    api: fully_shard\n    mesh: [2, 2]",
                "mesh [2,2] does not fill a world of 2"},
        Mistake{"PolicyDtype", 26, "      - {modules: [\"\"], mixed_precision: {param_dtype: int8}}",
                AT(26) "unknown value for unit.mixed_precision.param_dtype 'int8'"}),
    [](const auto& mistake) { return mistake.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Programs, Loading,
    testing::Values(
        Mistake{"Verb", 30, "  - foward: x", AT(30) "unknown verb 'foward', did you mean 'forward'?"},
        Mistake{"VerbInADroppedStep", 30, "  - forward: x\n  - {foward: x, when: false}",
                AT(31) "unknown verb 'foward'"},
        Mistake{"TwoVerbs", 30, "  - {forward: x, backward: loss}",
                AT(30) "a step does one thing; found 'forward' and 'backward'"},
        Mistake{"NotAMap", 30, "  - forward",
                AT(30) "a step must be a map such as {forward: x}, found 'forward'"},
        Mistake{"Argument", 30, "  - forward: {input: x, chunks: [0, 2]}",
                AT(30) "unknown key in forward 'chunks', did you mean 'chunk'?"},
        Mistake{"ArgumentMissing", 30, "  - forward: {output: y}", AT(30) "forward lacks the key 'input'"},
        Mistake{"ArgumentType", 30, "  - forward: {input: x, grad: 1}",
                AT(30) "forward.grad must be true or false, found 1"},
        Mistake{"Chunk", 30, "  - forward: {input: x, chunk: [2, 2]}",
                AT(30) "forward: chunk is [index, count] with index below count"},
        Mistake{"Input", 30, "  - forward: y", AT(30) "unknown input or register 'y'"},
        Mistake{"Register", 31, "  - loss: {kind: sum, of: outptu}",
                AT(31) "unknown register 'outptu', did you mean 'output'?"},
        Mistake{"LossWithoutTarget", 31, "  - loss: mse", AT(31) "loss of this kind needs 'with'"},
        Mistake{"Optimizer", 31, "  - loss: sum\n  - step: optimizer",
                AT(32) "unknown optimizer 'optimizer'; none is allowed"},
        Mistake{"Model", 28, "  - build: modell", AT(28) "unknown model 'modell', did you mean 'model'?"},
        Mistake{"Module", 31, "  - loss: sum\n  - unshard: \"5\"", AT(32) "unknown module '5'"},
        Mistake{"Rank", 30, "  - {forward: x, ranks: [2]}", AT(30) "rank 2 does not exist in a world of 2"},
        Mistake{"NobodyIsSaidToEnd", 30, "  - end_process: kill",
                AT(30) "end_process needs `ranks`, and not all of them: somebody must be left to notice"},
        Mistake{"NobodyIsLeft", 30, "  - {end_process: kill, ranks: [0, 1]}",
                AT(30) "end_process needs `ranks`, and not all of them: somebody must be left to notice"},
        Mistake{"Repeat", 30, "  - forward: x\n  - {repeat: many, do: []}",
                AT(31) "repeat.repeat must be a whole number, found 'many'"},
        Mistake{"RepeatWithoutBody", 30, "  - forward: x\n  - {repeat: 2}",
                AT(31) "repeat lacks the key 'do'"},
        Mistake{"NestedRepeat", 30, "  - forward: x\n  - {repeat: 2, do: [{repeat: 2, do: []}]}",
                AT(31) "the name 'iteration' is taken"},
        Mistake{"Scope", 30, "  - forward: x\n  - {within: no_snyc, do: []}",
                AT(31) "unknown value for enter.scope 'no_snyc', did you mean 'no_sync'?"},
        Mistake{"SummonArgument", 30,
                "  - forward: x\n  - {within: {scope: no_sync, writeback: true}, do: []}",
                AT(31) "'writeback' belongs to scope summon only"},
        Mistake{"ScopeOfNoPart", 30, "  - forward: x\n  - {within: {scope: no_grad, module: \"0\"}, do: []}",
                AT(31) "scope no_grad is the whole program's, not a module's"},
        Mistake{"StateDictOfNoPart", 30, "  - {state_dict: {as: saved, module: \"5\"}}",
                AT(30) "unknown module '5'"},
        Mistake{"StateDictOption", 30, "  - {state_dict: {as: saved, kind: sharded, rank0_only: true}}",
                AT(30) "'rank0_only' and 'offload_to_cpu' belong to state dicts of kind full"},
        Mistake{"BroadcastOfShards", 30,
                "  - {state_dict: {as: saved, kind: sharded}}\n  - {load_state_dict: {from: saved, "
                "broadcast_from_rank0: true}}",
                AT(31) "'broadcast_from_rank0' takes a state dict of kind full"},
        Mistake{"DevicesOfNoStateDict", 32, "  - observe: [\"devices:saved\"]",
                AT(32) "unknown state dict 'saved'"},
        Mistake{"Meanwhile", 30, "  - {meanwhile: {pass: forward, module: \"5\", do: summon}}",
                AT(30) "unknown module '5'"},
        Mistake{"NotRecursive", 30, "  - {set_is_last_backward: {value: true, recurse: false}}",
                AT(30) "unknown key in set_is_last_backward 'recurse'"},
        Mistake{"Observed", 32, "  - observe: [los]",
                AT(32) "unknown value for observe.what[0] 'los', did you mean 'loss'?"},
        Mistake{"LoadsWithoutContinuing", 31,
                "  - loss: sum\n  - load_checkpoint: {format: native, like: model}",
                AT(32) "load_checkpoint in a case that continues none: see 'continues'"},
        Mistake{"LoadsLikeNothing", 31, "  - loss: sum\n  - load_checkpoint: {format: native, like: modle}",
                AT(32) "unknown model 'modle', did you mean 'model'?"},
        Mistake{"LoadsNoOptimizerLikeOne", 31,
                "  - loss: sum\n  - load_checkpoint: {format: native, like: model, optimizer_like: o}",
                AT(32) "'optimizer' and 'optimizer_like' stand together or not at all"},
        Mistake{"SavesUnknownOptimizer", 31,
                "  - loss: sum\n  - save_checkpoint: {format: native, optimizer: o}",
                AT(32) "unknown optimizer 'o'"},
        Mistake{"MutateNothing", 31, "  - loss: sum\n  - mutate: {parameter: 0.weight}",
                AT(32) "mutate in place needs 'fill' or 'from'"},
        Mistake{"MutateParameter", 31, "  - loss: sum\n  - mutate: {parameter: 0.wait, fill: 1}",
                AT(32) "unknown parameter '0.wait'"},
        Mistake{"Pattern", 31, "  - loss: sum\n  - set_requires_grad: {value: false, match: \"[\"}",
                AT(32) "set_requires_grad.match is not a regular expression"},
        Mistake{"WhenType", 30, "  - {forward: x, when: world}",
                AT(30) "'when' must be true or false, 'world' is 2"},
        Mistake{"WhenWithBraces", 30, "  - {forward: x, when: \"${flag}\"}",
                AT(30) "'when' is an expression already and takes no ${}"},
        Mistake{"WhenUnknownName", 30, "  - {forward: x, when: flog}",
                AT(30) "unknown name 'flog', did you mean 'flag'?"},
        Mistake{"UninterruptedExpression", 30, "  - forward: \"${flag\"", AT(30) "'${' without '}'"},
        Mistake{"ForeachOfWhat", 31, "  - loss: sum\n  - foreach_mul: {of: nothing, by: 2}",
                AT(32) "unknown input 'nothing'"},
        Mistake{"TooLong", 30, "  - forward: x\n  - {repeat: 1000000, do: [{delay: 1}]}",
                AT(31) "the program has more than 100000 steps"}),
    [](const auto& mistake) { return mistake.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Expectations, Loading,
    testing::Values(
        Mistake{"Kind", 34, "  - equals: {what: [loss]}",
                AT(34) "unknown expectation 'equals', did you mean 'equal'?"},
        Mistake{"MatchOfNothing", 34, "  - match: {what: [loss]}",
                AT(34) "match needs one of 'labels' and 'between'"},
        Mistake{"MatchOfAnUnknownLabel", 34, "  - match: {what: [loss], labels: [here, there]}",
                AT(34) "unknown label 'here'; none is allowed"},
        Mistake{"KindInADroppedOne", 34, "  - equal: {what: loss}\n  - {equals: {what: [loss]}, when: false}",
                AT(35) "unknown expectation 'equals'"},
        Mistake{"TwoKinds", 34, "  - {equal: {what: loss}, finite: loss}",
                AT(34) "an expectation has one kind; found 'equal' and 'finite'"},
        Mistake{"Argument", 34, "  - equal: {what: [loss], tolerence: exact}",
                AT(34) "unknown key in equal 'tolerence', did you mean 'tolerance'?"},
        Mistake{"Modifier", 34, "  - {equal: {what: [loss]}, lable: x}",
                AT(34) "unknown key in an expectation 'lable', did you mean 'label'?"},
        Mistake{"Tolerance", 34, "  - equal: {what: [loss], tolerance: loose}",
                AT(34) "unknown value for equal.tolerance 'loose'"},
        Mistake{"NotObserved", 34, "  - equal: {what: [gradients]}",
                AT(34) "equal looks at 'gradients', which no step observes"},
        Mistake{"TraceNotObserved", 34, "  - collectives: {count: 1}",
                AT(34) "collectives looks at 'trace', which no step observes"},
        Mistake{"Label", 34, "  - {equal: {what: [loss]}, label: end}", AT(34) "unknown label 'end'"},
        Mistake{"Attempt", 34, "  - error: {attempt: first}", AT(34) "unknown attempt 'first'"},
        Mistake{"Count", 32,
                "  - observe: [loss, trace]\n  - observe: [loss]\nexpect: [{collectives: {op: "
                "all_gather}}]\nminimum:\n  elements: 1",
                "collectives needs one of 'count' and 'at_least'"},
        Mistake{"Message", 34, "  - error: {attempt: x, message: \"(\"}",
                AT(34) "error.message is not a regular expression"},
        Mistake{"Division", 34, "  - {finite: loss, iteration: \"${dim / 3}\"}",
                AT(34) "4 / 3 is not a whole number"}),
    [](const auto& mistake) { return mistake.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Twins, Loading,
    testing::Values(Mistake{"NoWhy", 34, "  - equal: {what: [loss]}\ntwins:\n  exact: {lane: exact}",
                            AT(36) "twin 'exact' lacks 'why'"},
                    Mistake{"ChangesId", 34, "  - equal: {what: [loss]}\ntwins:\n  exact: {why: x, id: y}",
                            AT(36) "a twin cannot change 'id'"},
                    Mistake{"Name", 34, "  - equal: {what: [loss]}\ntwins:\n  Exact: {why: x}",
                            AT(36) "a twin's name must be lower case"},
                    Mistake{"MistakeInThePatch", 34,
                            "  - equal: {what: [loss]}\ntwins:\n  exact:\n    why: x\n    lane: exakt",
                            AT(38) "unknown value for lane 'exakt'"}),
    [](const auto& mistake) { return mistake.param.name; });

TEST(LoadingSound, HasNothingToComplainAbout) {
  const ConformanceFolder folder;
  folder.scenario(sound_scenario);
  EXPECT_EQ(folder.mistakes(), "");
}

TEST(LoadingAll, MistakesOfAllFilesAreReportedAtOnceInOrder) {
  const ConformanceFolder folder;
  folder.write("scenarios/b.yaml", with_line(8, "lane: exakt"));
  folder.write("scenarios/a.yaml", with_line(30, "  - foward: x\n  - bacward: loss"));
  folder.model("broken", "id: other\nwhy: x\nmodule: {type: Liner}\n");
  const std::string text = folder.mistakes();
  std::vector<std::size_t> places;
  for (const char* mistake :
       {"models/broken.yaml:1: id must be the file's name 'broken'",
        "models/broken.yaml:3: unknown module type", "scenarios/a.yaml:30: unknown verb",
        "scenarios/a.yaml:31: unknown verb", "scenarios/b.yaml:1: id 'F2MP/Class/test_method' is taken by ",
        "scenarios/b.yaml:8: unknown value for lane"}) {
    EXPECT_THAT(text, HasSubstr(mistake));
    places.push_back(text.find(mistake));
  }
  EXPECT_TRUE(std::is_sorted(places.begin(), places.end())) << text;
}

TEST(LoadingAll, OneMistakeIsReportedOnceThoughEveryCaseHasIt) {
  const ConformanceFolder folder;
  folder.scenario(with_line(15, "      - {type: Liner}"));
  const std::string text = folder.mistakes();
  EXPECT_EQ(text.find("unknown module type"), text.rfind("unknown module type"));
}

TEST(LoadingAll, AFolderWithoutScenariosIsNoSilence) {
  const ConformanceFolder folder;
  EXPECT_THAT(folder.mistakes(), HasSubstr("no scenario files below"));
}

}  // namespace
}  // namespace fsdp_cts
