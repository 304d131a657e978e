#include "harness/scenario/read/scenario_grammar.hpp"

namespace fsdp_cts {

const Fields& scenario_fields() {
  static const Fields source = {
      {"seed", rules::text, false, {}, "number of the upstream file, such as \"000\", if it is a seed"},
      {"file", rules::text, false, {}, "upstream path"},
      {"lines", rules::text, false, {}, "such as \"62-138\""},
      {"restored", rules::text, false, {}, "what was damaged and how it was restored"},
      {"own", rules::text, false, {}, "instead of all others: what upstream has no test of"}};
  static const Fields skip_entry = {{"when", rules::condition, true}, {"reason", rules::text, true}};
  static const Fields cpu_form_entry = {{"when", rules::condition}, {"text", rules::text, true}};
  static const Rule cpu_form_rule{.types = types::map, .fields = &cpu_form_entry};
  static const Rule skip_rule{.types = types::map, .fields = &skip_entry};
  static const Fields minimums = {
      {"elements", rules::natural}, {"tensors", rules::natural}, {"collectives", rules::natural}};
  static const Rule worlds_rule{.types = types::integer, .at_least = 1};
  static const Rule requirement{.types = types::string | types::map,
                                .words = {"gpu", "cuda", "sim", "nccl", "compiler"},
                                .each = &rules::condition};
  static const Rule axis{.types = types::list | types::map, .each = &rules::anything};
  static const Rule module{.types = types::map, .schema_ref = "module"};
  static const Rule plan{.types = types::map, .schema_ref = "plan"};
  static const Rule step{.types = types::map, .schema_ref = "step"};
  static const Rule expectation{.types = types::map, .schema_ref = "expectation"};
  static const Rule switch_value{types::string | types::null};
  static const Rule binding{.types = types::map, .each = &rules::anything};
  static const Fields table = {
      {"id", rules::text, true, {}, "<SEED>/<Class>/<test_method>"},
      {"source", {.types = types::map, .fields = &source}, true, {}, "where upstream has it"},
      {"clauses", rules::names, true, {}, "clause numbers of clauses.md"},
      {"why", rules::text, true, {}, "the bug class the scenario exists for"},
      {"quirks", rules::names, false, {}, "what upstream does oddly and what is done instead"},
      {"axes",
       {.types = types::map, .each = &axis},
       false,
       {},
       "axis to scalars, or to named bundles of variables"},
      {"additional_axes", {.types = types::map, .each = &axis}, false, {}, "values beyond upstream's"},
      {"where",
       rules::condition,
       false,
       {},
       "combinations of axes and world for which it is false do not exist"},
      {"worlds", {.types = types::list, .each = &worlds_rule}, true, {}, "world sizes"},
      {"continues",
       {.types = types::map, .each = &rules::anything},
       false,
       {},
       "the case of this scenario whose checkpoint a case loads: axes that differ from its own; when; "
       "damage"},
      {"requires",
       {.types = types::list, .each = &requirement},
       false,
       {},
       "gpu, cuda, nccl, compiler; {gpu: condition}"},
      {"lane", {.types = types::string, .words = {"exact", "tolerance", "structure"}}, true},
      {"let", {.types = types::map, .each = &rules::anything}, false, {}, "variables"},
      {"skip", {.types = types::list, .each = &skip_rule}, false, {}, "what upstream returns early from"},
      {"cpu_form",
       {.types = types::list, .each = &cpu_form_rule},
       false,
       {},
       "what of the upstream case a CPU cannot do, and what is done instead"},
      {"of_seed",
       rules::condition,
       false,
       {},
       "which cases stand for upstream's; a twin's do not by themselves"},
      {"switches",
       {.types = types::map, .each = &switch_value},
       false,
       {},
       "environment of the case; null leaves unset"},
      {"models", {.types = types::map, .each = &module}, true, {}, "instance to module"},
      {"data", {.types = types::map, .fields = &data_fields()}, true, {}, "initial values and inputs"},
      {"plans", {.types = types::map, .each = &plan}, false, {}, "instance to plan"},
      {"program", {.types = types::list, .each = &step}, true, {}, "steps"},
      {"expect", {.types = types::list, .each = &expectation}, true, {}, "expectations"},
      {"minimum",
       {.types = types::map, .fields = &minimums},
       false,
       {},
       "a pass that compared less is unresolved"},
      {"twins",
       {.types = types::map, .each = &binding},
       false,
       {},
       "suffix to JSON merge patch over this file"},
      {"quick", {.types = types::list, .each = &binding}, false, {}, "axis bindings of the quick subset"},
  };
  return table;
}

const Fields& model_file_fields() {
  static const Rule module{.types = types::map, .schema_ref = "module"};
  static const Fields table = {
      {"id", rules::text, true, {}, "the file's name without .yaml"},
      {"why", rules::text, true, {}, "what the model is good for"},
      {"parameters", {.types = types::map, .each = &rules::anything}, false, {}, "name to default"},
      {"module", module, true, {}, "its description"}};
  return table;
}

const Fields& repeated_child_fields() {
  static const Fields table = {{"repeat", rules::natural, true},
                               {"module", {.types = types::map, .schema_ref = "module"}, true}};
  return table;
}

const Fields& seed_method_fields() {
  static const Fields table = {{"items", rules::positive, true},
                               {"cases", rules::positive, true},
                               {"early_returns", rules::natural, false, 0}};
  return table;
}

const Fields& upstream_area_fields() {
  static const Fields table = {{"files", rules::names, true, {}, "upstream paths"},
                               {"methods", rules::positive, true, {}, "test methods in them"},
                               {"out", rules::natural, false, 0, "of these, outside of the suite's subject"},
                               {"why", rules::text, false, {}, "what those are"}};
  return table;
}

namespace {

const Rule& formula_rule() {
  static const Rule rule{.types = types::string, .words = {"ordinary", "dyadic"}};
  return rule;
}

}  // namespace

const Fields& input_fields() {
  static const Fields table = {
      {"shape", rules::naturals, true},
      {"dtype", rules::dtype, false, "float32"},
      {"kind",
       {.types = types::string, .words = {"formula", "zeros", "ones", "arange", "full"}},
       false,
       "formula"},
      {"formula", formula_rule()},
      {"levels", rules::positive},
      {"unit", rules::number},
      {"scale", rules::number},
      {"value", {.types = types::number | types::string, .words = {"inf", "nan"}}, false, {}, "of kind full"},
      {"modulo", rules::positive, false, {}, "of integer dtypes: values below it"},
      {"per_rank", rules::boolean, false, false},
      {"per_iteration", rules::positive, false, {}, "makes NAME.0 to NAME.(n-1)"},
  };
  return table;
}

const Fields& parameter_data_fields() {
  static const Fields table = {
      {"formula", formula_rule()},
      {"levels", rules::positive},
      {"unit", rules::number},
      {"scale", {.types = types::number | types::string, .words = {"fan_in"}}},
      {"norms", {.types = types::string, .words = {"constant", "formula"}}, false, "constant"},
  };
  return table;
}

const Fields& data_fields() {
  static const Rule input{.types = types::map, .fields = &input_fields()};
  static const Fields table = {
      {"seed", rules::integer, true},
      {"formula", formula_rule(), false, "ordinary"},
      {"levels", rules::positive, false, {}, "dyadic: k in [-levels, levels]"},
      {"unit", rules::number, false, {}, "dyadic: value = k * unit"},
      {"parameters", {.types = types::map, .fields = &parameter_data_fields()}},
      {"per_rank", rules::names, false, {}, "globs <instance>:<name> of parameters that differ by rank"},
      {"inputs", {.types = types::map, .each = &input}},
  };
  return table;
}

}  // namespace fsdp_cts
