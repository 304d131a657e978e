#include "harness/scenario/read/verbs.hpp"

#include <algorithm>

#include "harness/scenario/case.hpp"

namespace fsdp_cts {
namespace {

const Field model{"model", rules::name, false, "model"};
const Field subtree{"module", rules::name, false, ""};

Field switch_field() {
  return {"value", rules::boolean, true};
}

Verb control(const char* name, const char* about) {
  return {name, "value", {switch_field(), model, subtree}, about};
}

// One that goes down to the units below, unless told not to.
Verb recursive_control(const char* name, const char* about) {
  Verb verb = control(name, about);
  verb.arguments.push_back({"recurse", rules::boolean, false, {}, "the units below it, too; default: true"});
  return verb;
}

Fields optimizer_arguments() {
  static const Rule betas{.types = types::list, .each = &rules::number, .length = 2};
  static const Fields settings = {{"momentum", rules::number},
                                  {"betas", betas},
                                  {"eps", rules::number},
                                  {"weight_decay", rules::number},
                                  {"foreach", rules::boolean}};
  static const Fields group = [] {
    Fields fields = {{"match", rules::pattern, true, {}, "regular expression on names"},
                     {"lr", rules::number}};
    fields.insert(fields.end(), settings.begin(), settings.end());
    return fields;
  }();
  static const Rule group_rule{.types = types::map, .fields = &group};
  Fields fields = {{"as", rules::name, false, "optimizer"},
                   model,
                   {"kind", {.types = types::string, .words = {"SGD", "Adam", "AdamW"}}, true},
                   {"lr", rules::number, true}};
  fields.insert(fields.end(), settings.begin(), settings.end());
  fields.push_back({"amsgrad",
                    rules::boolean,
                    false,
                    {},
                    "of Adam and AdamW: divide by the largest second moment so far"});
  fields.push_back({"match", rules::pattern});
  fields.push_back({"groups", {.types = types::list, .each = &group_rule}, false, {}, "first match wins"});
  return fields;
}

Rule observed_rule() {
  static const Rule what{.types = types::string,
                         .words = {"loss",
                                   "output",
                                   "parameters",
                                   "gradients",
                                   "full_parameters",
                                   "buffers",
                                   "optimizer_state",
                                   "trace",
                                   "recorded",
                                   "seen_parameters",
                                   "units",
                                   "counters",
                                   "training_state",
                                   "warnings",
                                   "identity",
                                   "devices",
                                   "registered_parameters",
                                   "clock",
                                   "memory",
                                   "virtual_time"},
                         .prefixes = {"register:", "state_dict:", "devices:"}};
  // One name is a list of one.
  return {
      .types = types::list | types::string, .words = what.words, .prefixes = what.prefixes, .each = &what};
}

std::vector<Verb> make_verbs() {
  static const Rule name_or_names{.types = types::string | types::list, .each = &rules::name};
  static const Field checkpoint_format{
      "format", {.types = types::string, .words = {"native", "safetensors", "dcp"}}, true};
  static const Rule scope{.types = types::string, .words = {"no_sync", "no_grad", "summon"}};
  const Field targets{"targets", rules::names, true};
  const Field main_model = model;
  const Field part{"module", rules::name, false, {}, "this part of it alone"};
  Fields scope_arguments = {{"scope", scope, true}, model, part};
  for (Field argument : summon_arguments()) {
    argument.fallback = nullptr;  // filled in for summon only
    scope_arguments.push_back(std::move(argument));
  }
  return {
      {"build",
       "model",
       {main_model, {"device", {.types = types::string, .words = {"cpu", "host", "meta"}}, false, "cpu"}},
       "make '{model}' with its initial values"},
      {"move", "model", {main_model}, "move '{model}' to the accelerator"},
      {"cast",
       "dtype",
       {{"dtype", rules::dtype, true},
        {"match", rules::pattern, false, {}, "only parameters of such names, and no buffer"},
        model},
       "make every floating parameter and buffer of '{model}' {dtype}"},
      {"materialize", "model", {main_model}, "give '{model}' storage, then this rank's initial values"},
      {"shard", "model", {main_model}, "apply the plan of '{model}', unit by unit"},
      {"compile",
       "model",
       {main_model, {"skip_fsdp_guards", rules::boolean, false, true}},
       "hand '{model}' to the language's graph compiler"},
      {"optimizer", "as", optimizer_arguments(), "make {kind} '{as}' over the parameters of '{model}'"},
      {"zero_grad",
       "optimizer",
       {{"optimizer", rules::name}, {"model", rules::name}, {"set_to_none", rules::boolean, false, true}},
       "clear the gradients"},
      {"forward",
       "input",
       {{"input", name_or_names, true},
        model,
        {"output", name_or_names, false, "output"},
        {"module", rules::name, false, {}, "call this part of the model instead"},
        {"method", rules::name, false, {}, "call this method of it in place of forward"},
        {"chunk",
         {.types = types::list, .each = &rules::natural, .length = 2},
         false,
         {},
         "[index, count] along dimension 0"},
        {"host", rules::boolean, false, {}, "give it what it takes in host memory"},
        {"grad", rules::boolean, false, true}},
       "run '{model}' on {input}, giving '{output}'"},
      {"loss",
       "kind",
       {{"kind", {.types = types::string, .words = {"sum", "dot", "mse", "cross_entropy"}}, true},
        {"of", name_or_names, false, Json::array({"output"})},
        {"with", rules::name},
        {"into", rules::name, false, "loss"}},
       "reduce {of} to the scalar '{into}' by {kind}"},
      {"backward",
       "loss",
       {{"loss", rules::name, false, "loss"},
        {"create_graph", rules::boolean, false, {}, "gradients that have gradients"}},
       "backward from '{loss}'"},
      {"leaf",
       "input",
       {{"input", rules::name, true}, {"into", rules::name, true}},
       "take input '{input}' as '{into}', whose gradient is asked for"},
      {"take_gradient",
       "of",
       {{"of", rules::name, true}, {"into", rules::name, true}},
       "note the gradient of '{of}' as '{into}'"},
      {"step_in_backward",
       "optimizer",
       {{"optimizer", rules::name, false, "optimizer"}},
       "from now on '{optimizer}' updates each parameter as soon as its gradient is there, and takes the "
       "gradient away"},
      {"step",
       "optimizer",
       {{"optimizer", rules::name, false, "optimizer"}},
       "'{optimizer}' updates its parameters"},
      {"scaler",
       "as",
       {{"as", rules::name, false, "scaler"},
        {"optimizer", rules::name, false, "optimizer"},
        {"init_scale", rules::number, false, 65536.0},
        {"growth_factor", rules::number, false, 2.0},
        {"backoff_factor", rules::number, false, 0.5},
        {"growth_interval", rules::positive, false, 2000}},
       "make gradient scaler '{as}' for '{optimizer}'"},
      {"scale_loss",
       "loss",
       {{"loss", rules::name, false, "loss"},
        {"scaler", rules::name, false, "scaler"},
        {"into", rules::name, false, "scaled"}},
       "multiply '{loss}' by the scale of '{scaler}', giving '{into}'"},
      {"unscale",
       "scaler",
       {{"scaler", rules::name, false, "scaler"}},
       "divide the gradients by the scale of '{scaler}'"},
      {"scaler_step",
       "scaler",
       {{"scaler", rules::name, false, "scaler"}},
       "the optimizer of '{scaler}' updates its parameters unless a gradient is not finite"},
      {"update_scale",
       "scaler",
       {{"scaler", rules::name, false, "scaler"}, {"into", rules::name, false, "scale"}},
       "settle the next scale of '{scaler}', noting it as '{into}'"},
      {"mode",
       "mode",
       {{"mode", {.types = types::string, .words = {"train", "eval"}}, true}, model, part},
       "put '{model}' into {mode} mode"},
      recursive_control("set_requires_gradient_sync",
                        "reduce gradients in the backwards that follow: {value}"),
      recursive_control("set_requires_all_reduce",
                        "all-reduce between replicas in the backwards that follow: {value}"),
      recursive_control("set_reshard_after_backward", "free gathered parameters after backward: {value}"),
      recursive_control("set_reshard_after_forward", "free gathered parameters after forward: {value}"),
      control("set_is_last_backward", "the next backward is the last one: {value}"),
      {"set_unshard_in_backward",
       "value",
       {{"value", rules::boolean, true}, model, subtree},
       "gather the parameters of module '{module}' itself for backward: {value}"},
      control("set_unshard_async_op", "put gathers on the current stream: {value}"),
      {"set_gradient_divide_factor",
       "value",
       {{"value", rules::number, true}, model, subtree},
       "divide gradients by {value}"},
      {"set_force_sum_reduction_for_comms",
       "value",
       {{"value", rules::boolean, true}, model, subtree},
       "reduce gradients of module '{module}' itself by sums alone: {value}"},
      {"unshard",
       "module",
       {subtree, model, {"async", rules::boolean, false, {}, "begin only; wait_unshard waits"}},
       "gather the parameters of module '{module}'"},
      {"wait_unshard",
       "module",
       {subtree, model},
       "wait until the parameters of module '{module}' are gathered"},
      {"reshard", "module", {subtree, model}, "free the gathered parameters of module '{module}'"},
      {"set_forward_prefetch",
       "module",
       {subtree, targets, model},
       "in forward gather {targets} together with module '{module}'"},
      {"set_backward_prefetch",
       "module",
       {subtree, targets, model},
       "in backward gather {targets} together with module '{module}'"},
      {"set_all_reduce_hook",
       "module",
       {subtree,
        model,
        {"scale", rules::number, false, 1.0, "the reduced gradient is multiplied by it"},
        {"add", rules::number, false, {}, "and this is added to each element"},
        {"mean_over",
         {.types = types::string, .words = {"replicas"}},
         false,
         {},
         "and averaged over these ranks, before"}},
       "let a hook scale what the unit of module '{module}' has reduced by {scale}"},
      {"set_post_optim_event",
       "module",
       {subtree, model},
       "tell module '{module}', the root, that its next forward need not wait for what comes from here on"},
      {"register_forward_method",
       "method",
       {{"method", rules::name, true}, subtree, model},
       "from now on method '{method}' of module '{module}' counts as its forward"},
      {"register_comm_hook",
       "model",
       {main_model,
        part,
        {"scale", rules::number, false, 1.0, "each rank's gradient is multiplied by it"},
        {"add", rules::number, false, {}, "and this is added to each element, before the sum"},
        {"dtype", rules::dtype, false, {}, "in which it is sent; the result is cast back"}},
       "let a hook reduce the gradients of '{model}': the sum over ranks, scaled by {scale}"},
      {"enter", "scope", scope_arguments, "enter {scope}"},
      {"leave", "scope", scope_arguments, "leave {scope}"},
      {"meanwhile",
       "pass",
       {{"pass", {.types = types::string, .words = {"forward", "backward"}}, true},
        {"module", rules::name, true, {}, "a layer"},
        {"do", {.types = types::string, .words = {"summon", "state_dict"}}, true},
        model},
       "when layer '{module}' next begins its {pass}: {do}"},
      {"attempt_begin",
       "name",
       {{"name", rules::name, true}},
       "attempt '{name}' begins: an error from here on ends it, not the case"},
      {"attempt_end", "name", {{"name", rules::name, true}}, "attempt '{name}' ends"},
      {"mutate",
       "parameter",
       {{"parameter", rules::name, true},
        model,
        {"what", {.types = types::string, .words = {"value", "grad"}}, false, "value"},
        {"how", {.types = types::string, .words = {"inplace", "data", "replace", "none"}}, false, "inplace"},
        {"fill", rules::number},
        {"from", rules::name},
        {"grow", rules::integer, false, 0}},
       "change the {what} of '{parameter}' behind the implementation's back, by {how}"},
      {"set_requires_grad",
       "value",
       {switch_field(), {"match", rules::pattern}, model},
       "set requires_grad to {value}"},
      {"set_buffer",
       "name",
       {{"name", rules::name, true}, {"dtype", rules::dtype, true}, model},
       "make buffer '{name}' {dtype}"},
      {"restride",
       "name",
       {{"name", rules::name, true}, model},
       "lay '{name}' out in memory column after column"},
      {"state_dict",
       "as",
       {{"as", rules::name, true},
        model,
        part,
        {"kind", {.types = types::string, .words = {"full", "sharded", "local"}}, false, "full"},
        {"rank0_only", rules::boolean, false, {}, "the other ranks take part and get nothing"},
        {"offload_to_cpu", rules::boolean, false, {}, "its tensors lie in host memory"}},
       "take a {kind} state dict as '{as}'"},
      {"load_state_dict",
       "from",
       {{"from", rules::name, true},
        model,
        part,
        {"broadcast_from_rank0", rules::boolean, false, {}, "the first rank's, whatever the others have"}},
       "load state dict '{from}'"},
      {"optimizer_state_dict",
       "as",
       {{"as", rules::name, true},
        {"optimizer", rules::name, false, "optimizer"},
        {"kind", {.types = types::string, .words = {"full", "sharded"}}, false, "full"}},
       "take a {kind} state dict of '{optimizer}' as '{as}'"},
      {"load_optimizer_state_dict",
       "from",
       {{"from", rules::name, true}, {"optimizer", rules::name, false, "optimizer"}},
       "load state dict '{from}' into '{optimizer}'"},
      {"save_checkpoint",
       "format",
       {checkpoint_format, model, {"optimizer", rules::name, false, {}, "its state is saved, too"}},
       "save '{model}' as a {format} checkpoint"},
      {"load_checkpoint",
       "format",
       {checkpoint_format,
        model,
        {"optimizer", rules::name, false, {}, "gets the state that was saved with the model"},
        {"like", rules::name, true, {}, "model that has by now what the checkpoint must hold"},
        {"optimizer_like", rules::name, false, {}, "the same of the optimizer"}},
       "load the {format} checkpoint of the continued case into '{model}'"},
      {"zero_parameters", "model", {main_model}, "set every parameter of '{model}' to zero in place"},
      {"foreach_mul",
       "of",
       {{"of", name_or_names, true},
        {"by", rules::number, true},
        {"copies", rules::positive, false, 1},
        {"into", rules::name, false, "product"}},
       "multiply {copies} copies of each of {of} by {by} in one operation, giving '{into}'"},
      {"clip_grad_norm",
       "into",
       {{"max_norm", rules::number, true},
        {"norm_type", {.types = types::number | types::string, .words = {"inf"}}, false, 2.0},
        model,
        part,
        {"into", rules::name, false, "norm"}},
       "clip the gradients to norm {max_norm}, noting the norm as '{into}'"},
      {"end_process",
       "by",
       {{"by", {.types = types::string, .words = {"kill"}}, false, "kill"}},
       "the process ends at once, without a word to anybody"},
      {"delay",
       "milliseconds",
       {{"milliseconds", {.types = types::number, .at_least = 0}, true},
        {"at",
         {.types = types::string, .words = {"now", "before_reduce", "before_free", "after_loss"}},
         false,
         "now"}},
       "sleep {milliseconds} ms ({at})"},
      {"observe", "what", {{"what", observed_rule(), true}, model}, "hand over {what}"},
  };
}

}  // namespace

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> table = make_verbs();
  return table;
}

const Verb* find_verb(std::string_view name) {
  const auto& table = verbs();
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const Verb& verb) { return verb.name == name; });
  return found == table.end() ? nullptr : &*found;
}

const Fields& step_modifiers() {
  static const Fields table = {{"label", rules::text, false, {}, "name of an observation, for expectations"},
                               {"ranks", rules::naturals, false, {}, "only these ranks take the step"}};
  return table;
}

const std::vector<std::string>& block_names() {
  static const std::vector<std::string> names = {"repeat", "within", "attempt"};
  return names;
}

const Fields& block_fields(std::string_view block) {
  static const Rule step{.types = types::map, .schema_ref = "step"};
  static const Field body{"do", {.types = types::list, .each = &step}, true};
  static const Field ranks = *find_field(step_modifiers(), "ranks");
  static const Fields repeat = {{"repeat", rules::natural, true},
                                {"as", rules::name, false, {}, "the loop variable; default: iteration"},
                                body};
  static const Rule scope{.types = types::string | types::map, .fields = &find_verb("enter")->arguments};
  static const Fields within = {{"within", scope, true}, body, ranks};
  static const Fields attempt = {
      {"attempt", rules::name, true, {}, "what expectations call it"}, body, ranks};
  return block == "repeat" ? repeat : block == "within" ? within : attempt;
}

const Fields& summon_arguments() {
  static const Fields table = {{"writeback", rules::boolean, false, true},
                               {"rank0_only", rules::boolean, false, false},
                               {"recurse", rules::boolean, false, true},
                               {"with_grads", rules::boolean, false, false},
                               {"offload_to_cpu", rules::boolean, false, false}};
  return table;
}

const Fields& optimizer_defaults(std::string_view kind) {
  const auto adam = [](double weight_decay) {
    return Fields{{"betas", {}, false, Json::array({0.9, 0.999})},
                  {"eps", {}, false, 1e-8},
                  {"weight_decay", {}, false, weight_decay}};
  };
  static const Fields sgd = {{"momentum", {}, false, 0.0}, {"weight_decay", {}, false, 0.0}};
  static const Fields plain_adam = adam(0.0), decoupled = adam(0.01);
  return kind == "SGD" ? sgd : kind == "AdamW" ? decoupled : plain_adam;
}

}  // namespace fsdp_cts
