#include "harness/scenario/read/expectation_kinds.hpp"

#include <algorithm>

#include "harness/scenario/read/verbs.hpp"

namespace fsdp_cts {
namespace {

const std::vector<std::string> phases = {"construction", "lazy_init", "forward",    "backward",
                                         "optimizer",    "summon",    "state_dict", "other"};

std::vector<ExpectationKind> make_kinds() {
  // Everything that `observe` knows may be compared.
  static const Rule& observed_names = find_field(find_verb("observe")->arguments, "what")->rule;
  static const Rule pair{.types = types::list, .each = &rules::name, .length = 2};
  static const Rule truth{.types = types::string, .words = {"reference", "golden"}};
  static const Fields bounds = {{"rtol", rules::number, true}, {"atol", rules::number, true}};
  static const Rule tolerance{.types = types::string | types::map,
                              .words = {"exact", "upstream", "float64", "float32", "float16", "bfloat16"},
                              .fields = &bounds};
  using rules::pattern;
  static const Rule ranks{.types = types::string | types::list, .words = {"all"}, .each = &rules::natural};
  static const Rule phase{.types = types::string, .words = phases};
  static const Rule op{.types = types::string,
                       .words = {"all_gather", "reduce_scatter", "all_reduce", "broadcast", "other"}};
  static const Rule issued{.types = types::string,
                           .words = {"all_gather", "reduce_scatter", "all_reduce", "broadcast", "compute"}};
  static const Rule group{.types = types::list, .each = &rules::natural};
  static const Fields collective = {{"op", issued, true},
                                    {"unit", rules::name, true, {}, "\"\" is the root"}};
  static const Rule one_collective{.types = types::map, .fields = &collective};
  static const Rule piece{.types = types::list, .each = &rules::natural, .length = 3};
  static const Rule pieces{.types = types::list, .each = &piece};
  static const Rule shape_of_parameter{.types = types::list, .each = &rules::anything, .length = 2};
  static const Fields at_least = {{"at_least", rules::natural, true}};
  static const Rule counter{.types = types::integer | types::map, .fields = &at_least};
  static const Fields unit = {{"module", rules::name, true},
                              {"settings", {.types = types::map, .each = &rules::anything}}};
  static const Rule unit_rule{.types = types::map, .fields = &unit};
  const Field what{"what", observed_names, true};
  const Field attempt{"attempt", rules::name, true};

  return {
      {"equal",
       "",
       {what,
        {"to",
         {.types = types::list | types::string, .words = truth.words, .each = &truth},
         false,
         Json::array({"reference", "golden"})},
        {"tolerance", tolerance, false, {}, "default: exact in the exact lane, upstream elsewhere"},
        {"check_dtype", rules::boolean, false, true},
        {"order_sensitive", rules::boolean, false, false},
        {"only", pattern}},
       "{what} equal to the {to}, tolerance {tolerance}"},
      {"match",
       "",
       {what, {"labels", pair}, {"between", pair}, {"tolerance", tolerance, false, "exact"}},
       "{what} equal on both sides, tolerance {tolerance}"},
      {"differ", "", {what, {"labels", pair}, {"between", pair}, {"only", pattern}}, "{what} not equal"},
      {"dtype",
       "",
       {what, {"is", rules::dtype, true}, {"at_least", rules::positive, false, 1}},
       "{what} are {is}, in at least {at_least} tensors over all ranks"},
      {"recorded",
       "",
       {},
       "dtypes seen inside the modules: {}",
       Rule{.types = types::map, .each = &rules::dtype_or_null}},
      {"seen_parameters",
       "",
       {{"as", rules::name, true}, {"is", {.types = types::list, .each = &shape_of_parameter}, true}},
       "parameters seen inside the module, noted as '{as}': {is}"},
      {"error",
       "attempt",
       {attempt,
        {"type", rules::name},
        {"message", pattern},
        {"ranks", ranks, false, "all"},
        {"phase", phase}},
       "attempt '{attempt}' ends in an error"},
      {"no_error", "attempt", {attempt}, "attempt '{attempt}' succeeds"},
      {"warning",
       "message",
       {{"message", pattern, true},
        {"category", rules::name},
        {"at_least", rules::positive, false, 1},
        {"ranks", ranks, false, "all"}},
       "a warning matches '{message}'"},
      {"no_warning", "message", {{"message", pattern, true}}, "no warning matches '{message}'"},
      {"collectives",
       "",
       {{"op", op},
        {"phase", phase},
        {"group_size", rules::positive},
        {"count", rules::natural},
        {"at_least", rules::natural},
        {"dtype", rules::dtype},
        {"reduce_op", {.types = types::string | types::null, .words = {"sum", "avg", "max"}}},
        {"in_numel", rules::natural},
        {"out_numel", rules::natural},
        {"groups", {.types = types::string | types::list, .words = {"world", "self"}, .each = &group}}},
       "collectives, per rank and trace"},
      {"collective_bytes",
       "",
       {{"op", op}, {"total", rules::natural, true}},
       "bytes sent, per rank and trace: {total}"},
      {"order",
       "",
       {{"phase", phase}, {"first", one_collective, true}, {"then", one_collective, true}},
       "in every trace {first} is issued before {then}"},
      {"transport_bytes",
       "",
       {{"at_least", rules::natural, true}, {"at_most", rules::natural, true}},
       "all ranks together send {at_least} to {at_most} bytes over Gloo during the case"},
      {"layout",
       "",
       {{"kind", {.types = types::string, .words = {"chunk_dim0", "flat"}}},
        {"sharded", rules::boolean, false, true},
        {"pieces", {.types = types::map, .each = &pieces}}},
       "the shards lie as the layout rule says"},
      {"unit_tree", "", {}, "the units are exactly {}", Rule{.types = types::list, .each = &unit_rule}},
      {"counters", "", {}, "counters: {}", Rule{.types = types::map, .each = &counter}},
      {"training_state",
       "is",
       {{"is", {.types = types::string, .words = {"idle"}}, true}},
       "the training state is {is}"},
      {"devices",
       "is",
       {{"is", {.types = types::string, .words = {"cpu", "pinned", "accelerator"}}, true},
        {"of", rules::name, false, {}, "a state dict's entries in place of parameters"},
        {"count", rules::natural, false, {}, "how many a rank has"},
        {"ranks", ranks, false, "all"}},
       "what a rank holds of every parameter lies in memory of this kind: {is}"},
      {"registered_parameters",
       "",
       {{"count", rules::positive},
        {"elements", rules::positive},
        {"sizes", {.types = types::list, .each = &rules::positive}}},
       "the module hands {count} parameters to an optimizer, of {sizes} elements"},
      {"elapsed",
       "",
       {{"labels", pair, true}, {"at_least", rules::natural, true}, {"ranks", ranks, false, "all"}},
       "at least {at_least} ms pass between the clocks {labels}"},
      {"memory",
       "",
       {{"is", {.types = types::string, .words = {"current", "peak"}}, true},
        {"labels", pair, true},
        {"at_least", rules::natural, false, 0},
        {"at_most", rules::natural, true}},
       "from {labels} the device's {is} memory grows by {at_least} to {at_most} bytes"},
      {"virtual_time",
       "",
       {{"exposed_percent", rules::natural, true}},
       "at most {exposed_percent} % of the communication is not hidden behind computation"},
      {"gradient_none",
       "match",
       {{"match", pattern}, {"is", rules::boolean, false, true}, {"at_least", rules::positive, false, 1}},
       "gradients are absent: {is}, for at least {at_least} parameters"},
      {"requires_grad",
       "",
       {{"match", pattern}, {"is", rules::boolean, true}, {"at_least", rules::positive, false, 1}},
       "parameters require gradients: {is}, for at least {at_least} shares over all ranks"},
      {"finite", "what", {what}, "{what} hold no NaN and no infinity"},
  };
}

}  // namespace

const std::vector<ExpectationKind>& expectation_kinds_of_language() {
  static const std::vector<ExpectationKind> table = make_kinds();
  return table;
}

const ExpectationKind* find_expectation_kind(std::string_view name) {
  const auto& table = expectation_kinds_of_language();
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const ExpectationKind& kind) { return kind.name == name; });
  return found == table.end() ? nullptr : &*found;
}

std::vector<std::string> observations_needed(const std::string& kind, const Json& arguments) {
  if (arguments.is_object() && arguments.contains("what"))
    return arguments["what"].get<std::vector<std::string>>();
  if (kind == "devices" && arguments.contains("of")) return {"devices:" + arguments["of"].get<std::string>()};
  static const std::map<std::string, std::string> fixed = {{"recorded", "recorded"},
                                                           {"seen_parameters", "seen_parameters"},
                                                           {"warning", "warnings"},
                                                           {"no_warning", "warnings"},
                                                           {"collectives", "trace"},
                                                           {"collective_bytes", "trace"},
                                                           {"order", "trace"},
                                                           {"unit_tree", "units"},
                                                           {"counters", "counters"},
                                                           {"training_state", "training_state"},
                                                           {"devices", "devices"},
                                                           {"registered_parameters", "registered_parameters"},
                                                           {"elapsed", "clock"},
                                                           {"memory", "memory"},
                                                           {"virtual_time", "virtual_time"},
                                                           {"requires_grad", "parameters"},
                                                           {"gradient_none", "gradients"}};
  const auto found = fixed.find(kind);
  return found == fixed.end() ? std::vector<std::string>{} : std::vector<std::string>{found->second};
}

const Fields& expectation_modifiers() {
  static const Fields table = {
      {"clause", {.types = types::string | types::list, .each = &rules::name}},
      {"label", rules::text},
      {"iteration", rules::natural},
      {"model", rules::name},
      {"since", rules::text, false, {}, "the first PyTorch version it is for, \"2.15\""},
      {"until", rules::text, false, {}, "the first PyTorch version it is not for any more"}};
  return table;
}

}  // namespace fsdp_cts
