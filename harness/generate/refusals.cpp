#include "harness/generate/refusals.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <stdexcept>

namespace fsdp_cts::generate {
namespace {

// `M` stands for the model, `O` for another one, `A` for the attempt, `W` for the size of the world, `W1` for one more.
struct Refusal {
  const char* name;
  const char* apis;  // fully_shard, fsdp, composable, or several
  const char* model;
  const char* units;   // and what else a plan holds behind them
  std::string before;  // steps, one a line
  const char* refused;
  const char* type;
  const char* message;
  const char* clauses;
  bool by_pytorch = true;
  bool needs_ranks = false;     // more than one
  const char* other = nullptr;  // made and sharded before `before`, by the same units
  bool in_scope = false;        // of whole parameters
  bool on_device = false;       // an accelerator
};

constexpr const char* stack =
    "{type: Sequential, children: [{type: Linear, in: 4, out: 4}, {type: Linear, in: 4, out: 4, bias: "
    "false}]}";
constexpr const char* stack_of_other_shape =
    "{type: Sequential, children: [{type: Linear, in: 4, out: 4}, {type: Linear, in: 4, out: 6, bias: "
    "false}]}";
constexpr const char* stack_of_nearly_its_size =
    "{type: Sequential, children: [{type: Linear, in: 4, out: 4}, {type: Linear, in: 5, out: 3, bias: "
    "false}]}";
constexpr const char* stack_to_one =
    "{type: Sequential, children: [{type: Linear, in: 4, out: 4}, {type: Linear, in: 4, out: 1}]}";
constexpr const char* stack_with_bias =
    "{type: Sequential, children: [{type: Linear, in: 4, out: 4}, {type: Linear, in: 4, out: 4}]}";
constexpr const char* with_scalar =
    "{type: Graph, inputs: [x], parameters: {factor: {shape: []}}, children: {lin: {type: Linear, in: 4, "
    "out: 4}}, "
    "forward: [{call: lin, args: [x], to: h}, {parameter: factor, to: f}, {mul: [h, f], to: y}], output: y}";
constexpr const char* with_buffer =
    "{type: Graph, inputs: [x], buffers: {shift: {shape: [4], dtype: float32, fill: ones}}, "
    "children: {lin: {type: Linear, in: 4, out: 4}}, "
    "forward: [{call: lin, args: [x], to: h}, {buffer: shift, to: s}, {add: [h, s], to: y}], output: y}";
constexpr const char* with_other_buffer =
    "{type: Graph, inputs: [x], buffers: {shift: {shape: [1], dtype: float32, fill: ones}}, "
    "children: {lin: {type: Linear, in: 4, out: 4}}, "
    "forward: [{call: lin, args: [x], to: h}, {buffer: shift, to: s}, {add: [h, s], to: y}], output: y}";
constexpr const char* tied =
    "{type: Graph, inputs: [x], tie: [[b.weight, a.weight]], children: {a: {type: Linear, in: 4, out: 4}, "
    "b: {type: Linear, in: 4, out: 4}}, forward: [{call: a, args: [x], to: h}, {call: b, args: [h], to: y}], "
    "output: y}";
// Of whose only parameter every rank has a part, in worlds of up to five.
constexpr const char* single = "{type: Linear, in: 4, out: 5, bias: false}";
constexpr const char* squares =
    "{type: Graph, inputs: [x], children: {lin: {type: Linear, in: 4, out: 4}}, "
    "forward: [{call: lin, args: [x], to: h}, {mul: [h, h], to: y}], output: y}";
constexpr const char* of_two_dtypes =
    "{type: Graph, inputs: [x], children: {old: {type: Linear, in: 4, out: 4}, new: {type: Linear, in: 4, "
    "out: 4}}, "
    "forward: [{cast: x, dtype: bfloat16, to: l}, {call: old, args: [l], to: a}, {cast: a, dtype: float32, "
    "to: b}, "
    "{call: new, args: [b], to: y}], output: y}";
constexpr const char* containers =
    "{type: Graph, inputs: [x], children: {list: {type: ModuleList, children: [{type: Linear, in: 4, out: "
    "4}]}}, "
    "forward: [{call: list.0, args: [x], to: y}], output: y}";

constexpr const char* root = "[{modules: ['']}]";
constexpr const char* nested = "[{modules: ['0']}, {modules: ['']}]";
constexpr const char* differing_limits =
    "[{modules: ['0'], limit_all_gathers: false}, {modules: [''], limit_all_gathers: true}]";
constexpr const char* build = "build: M\n";
constexpr const char* made = "build: M\nshard: M\n";
constexpr const char* trained =
    "build: M\nshard: M\noptimizer: {as: A, model: M, kind: SGD, lr: 0.5, momentum: 0.5, foreach: false}\n"
    "optimizer: {as: O, model: O, kind: SGD, lr: 0.5, momentum: 0.5, foreach: false}\n"
    "forward: {input: narrow, model: O, output: A}\nloss: {kind: sum, of: A, into: A_loss}\nbackward: "
    "A_loss\nstep: O\n";
constexpr const char* ran =
    "build: M\nshard: M\nforward: {input: narrow, model: M, output: A}\nloss: {kind: sum, of: A, into: "
    "A_loss}\n";
const std::string backward = std::string(ran) + "backward: A_loss\n";
const std::string ran_and_changed =
    std::string(ran) + "mutate: {model: M, parameter: weight, what: value, how: replace, fill: 2}\n";
const std::string scaled =
    "build: M\nshard: M\noptimizer: {as: A, model: M, kind: SGD, lr: 0.5}\nscaler: {as: A, optimizer: A, "
    "init_scale: 8}\nforward: {input: narrow, model: M, output: A}\nloss: {kind: sum, of: A, into: A_loss}\n"
    "scale_loss: {loss: A_loss, scaler: A, into: A_scaled}\nbackward: A_scaled\n";
constexpr const char* with_full_state = "build: M\nshard: M\nstate_dict: {as: A, model: O, kind: full}\n";
constexpr const char* with_sharded_state =
    "build: M\nshard: M\nstate_dict: {as: A, model: O, kind: sharded}\n";
constexpr const char* with_local_state = "build: M\nshard: M\nstate_dict: {as: A, model: O, kind: local}\n";
constexpr const char* shard = "shard: M\n";
constexpr const char* forwards = "forward: {input: narrow, model: M, output: A}\n";
constexpr const char* loads = "load_state_dict: {from: A, model: M}\n";
constexpr const char* sharded_and_forward = "shard: M\nforward: {input: narrow, model: M, output: A}\n";

const std::vector<Refusal>& table() {
  static const std::vector<Refusal> rows = {
      {"scalar", "fully_shard", with_scalar, root, build, shard, "ValueError",
       "fully_shard doesn't support scalar parameters. Change factor to a 1D tensor with numel equal to 1",
       "FS-ERR-1 FS-SHARD-6"},
      {"no_such_dimension", "fully_shard", stack, "[{modules: [''], shard_dims: {0.weight: 2}}]", build,
       shard, "AssertionError", "Shard dim 2 is invalid for 2D tensor", "FS-ERR-1"},
      {"uneven_columns", "fully_shard", "{type: Linear, in: W1, out: 4}",
       "[{modules: [''], shard_dims: {weight: 1}}]", build, shard, "NotImplementedError",
       "FSDP does not support uneven sharding on dim 1", "FS-ERR-1", true, true},
      {"uneven_columns_from_the_end", "fully_shard", "{type: Linear, in: W1, out: 4}",
       "[{modules: [''], shard_dims: {weight: -1}}]", build, shard, "NotImplementedError",
       "FSDP does not support uneven sharding on dim 1", "FS-ERR-1", true, true},
      {"container", "fully_shard", containers, "[{modules: [list]}]", build, shard, "ValueError",
       "fully_shard does not support containers that do not implement forward", "FS-ERR-1 FS-APPLY-1"},
      {"twice", "fully_shard composable", stack, "[{modules: ['0']}, {modules: ['0']}, {modules: ['']}]",
       build, shard, "AssertionError",
       "Each distinct composable distributed API can only be applied to a module once", "FS-ERR-1"},
      {"list_as_root", "fully_shard", stack, "[{modules: ['0', '1']}]", made, forwards, "RuntimeError",
       "FSDP requires a single root module but got ", "FS-ERR-1 FS-ROOT-1"},
      {"part_ran_first", "fully_shard", stack, "[{modules: ['0']}, {modules: ['1']}, {modules: ['']}]",
       "build: M\nshard: M\nforward: {input: narrow, model: M, module: '0', output: A, grad: false}\n",
       forwards, "RuntimeError", "FSDP state has already been lazily initialized for 0",
       "FS-ERR-1 FS-ROOT-1"},
      {"tied_across_units", "fully_shard", tied, "[{modules: [a]}, {modules: [b]}, {modules: ['']}]", build,
       sharded_and_forward, "ValueError", "already managed by another", "FS-ERR-1 FS-SHARD-8", false},
      {"on_meta", "fully_shard", stack, nested, "build: {model: M, device: meta}\n", sharded_and_forward,
       "RuntimeError", "still on meta device: ..(0.weight', '0.bias|1.weight)'.", "FS-ERR-1 FS-META-1"},
      {"all_on_meta", "fully_shard", stack, root, "build: {model: M, device: meta}\n", sharded_and_forward,
       "RuntimeError", "still on meta device: ..0.weight', '0.bias', '1.weight'.", "FS-ERR-1 FS-META-1"},
      {"several_dtypes", "fully_shard", of_two_dtypes, root,
       "build: M\ncast: {model: M, dtype: bfloat16, match: '^old'}\n", sharded_and_forward, "AssertionError",
       "FSDP expects uniform original parameter dtype but got", "FS-ERR-1 FS-DTYPE-1"},
      {"gather_ahead_no_unit", "fully_shard", stack, nested, made,
       "set_forward_prefetch: {model: M, module: '', targets: ['0', '1']}\n", "ValueError",
       "Expects FSDPModule but got ", "FS-ERR-1"},
      {"gather_ahead_no_unit_in_backward", "fully_shard", stack, nested, made,
       "set_backward_prefetch: {model: M, module: '', targets: ['0', '1']}\n", "ValueError",
       "Expects FSDPModule but got ", "FS-ERR-1"},
      {"state_lacks", "fully_shard", stack_with_bias, nested, with_sharded_state, loads, "RuntimeError",
       "1[.]bias", "FS-STATE-6", true, false, stack},
      {"state_exceeds", "fully_shard", stack, nested, with_full_state, loads, "RuntimeError", "1[.]bias",
       "FS-STATE-6", true, false, stack_with_bias},
      {"state_of_another_shape", "fully_shard", stack, nested, with_full_state, loads, "RuntimeError",
       "1[.]weight", "FS-STATE-6", true, false, stack_of_other_shape},
      {"buffer_of_another_shape", "fully_shard", with_buffer, root, with_full_state, loads, "RuntimeError",
       "shift", "FS-STATE-6", true, false, with_other_buffer},
      {"optimizer_state_of_another_shape", "fully_shard", stack, nested, trained,
       "optimizer_state_dict: {as: A, optimizer: O, kind: full}\nload_optimizer_state_dict: {from: A, "
       "optimizer: A}\n",
       "RuntimeError", "1[.]weight", "FS-OPT-3", false, false, stack_of_other_shape},
      {"optimizer_state_of_one_element", "fully_shard", stack_with_bias, nested, trained,
       "optimizer_state_dict: {as: A, optimizer: O, kind: full}\nload_optimizer_state_dict: {from: A, "
       "optimizer: A}\n",
       "RuntimeError", "1[.]bias", "FS-OPT-3", false, false, stack_to_one},
      {"optimizer_state_exceeds", "fully_shard", stack, nested, trained,
       "optimizer_state_dict: {as: A, optimizer: O, kind: sharded}\nload_optimizer_state_dict: {from: A, "
       "optimizer: A}\n",
       "RuntimeError", "1[.]bias", "FS-OPT-3", false, false, stack_with_bias},

      {"unscaled_twice", "fully_shard", stack, root, scaled + "unscale: A\n", "unscale: A\n", "RuntimeError",
       "unscale_.. has already been called on this optimizer since the last update", "FS-ERR-1 FS-SCALER-1"},
      {"unscaled_after_step", "fully_shard", stack, root, scaled + "scaler_step: A\n", "unscale: A\n",
       "RuntimeError", "unscale_.. is being called after step", "FS-ERR-1 FS-SCALER-1"},
      {"scale_settled_first", "fully_shard", stack, root, scaled, "update_scale: A\n", "AssertionError",
       "No inf checks were recorded prior to update", "FS-ERR-1 FS-SCALER-1"},

      {"flat_scalar", "fsdp composable", with_scalar, root, build, shard, "ValueError",
       "FSDP doesn't support scalar parameters. Change factor to a 1D tensor with numel equal to 1",
       "FS-ERR-1"},
      {"ignored_unit", "composable", stack, "[{modules: ['0']}, {modules: [''], ignored_modules: ['0']}]",
       build, shard, "ValueError", "`ignored_modules` should not include FSDP modules", "FS-ERR-1"},
      {"flat_several_dtypes", "fsdp", of_two_dtypes, root,
       "build: M\ncast: {model: M, dtype: bfloat16, match: '^old'}\n", shard, "ValueError",
       "Must flatten tensors with uniform dtype but got", "FS-ERR-1 FP-DTYPE-1"},
      {"frozen_in_part", "fsdp", stack, root,
       "build: M\nset_requires_grad: {model: M, value: false, match: '^0[.]weight$'}\n", shard, "ValueError",
       "Must flatten tensors with uniform .requires_grad. when .use_orig_params=False", "FS-ERR-1"},
      {"frozen_behind_trained", "fsdp", stack, root,
       "build: M\nset_requires_grad: {model: M, value: false, match: '^1[.]weight$'}\n", shard, "ValueError",
       "Must flatten tensors with uniform .requires_grad. when .use_orig_params=False", "FS-ERR-1"},
      {"part_clipped", "fsdp", stack, nested, ran, "clip_grad_norm: {model: M, module: '0', max_norm: 1}\n",
       "RuntimeError", "should only be called on the root FSDP instance", "FP-ROOT-1"},
      {"part_without_sync", "fsdp", stack, nested, ran, "within: {scope: no_sync, model: M, module: '0'}\n",
       "RuntimeError", "on inner FSDP instances is not supported", "FP-ROOT-1"},
      {"hook_of_a_part", "fsdp", stack, nested, ran, "register_comm_hook: {model: M, module: '0'}\n",
       "AssertionError", "register_comm_hook can only be called on a root instance.", "FP-ROOT-1"},
      {"wrapped_already", "fsdp", stack,
       "[{modules: ['0']}, {modules: [''], auto_wrap: {policy: size_based}}]", build, shard, "ValueError",
       "FSDP auto wrapping requires modules to not already have FSDP applied but found 0 in",
       "FS-ERR-1 WR-1"},
      {"wrong_answer", "fsdp", stack,
       "[{modules: [''], auto_wrap: {policy: custom, rules: [{class: Linear, wrap: 3}]}}]", build, shard,
       "ValueError", "should return False/True or a kwarg dict", "WR-3 G-2"},
      {"wrong_answer_about_root", "fsdp", stack,
       "[{modules: [''], auto_wrap: {policy: custom, rules: [{class: Sequential, wrap: 3}]}}]", build, shard,
       "ValueError", "should return False/True or a kwarg dict", "WR-3 G-2"},
      {"wrapped_frozen_in_part", "fsdp", stack,
       "[{modules: [''], use_orig_params: false, auto_wrap: {policy: module_wrap, classes: [Linear]}}]",
       "build: M\nset_requires_grad: {model: M, value: false, match: '^0[.]weight$'}\n", shard, "ValueError",
       "^0 has both parameters with requires_grad=True and False", "FS-ERR-1 WR-5"},
      {"limits_differ_in_scope", "fsdp", stack, differing_limits, made, "within: {scope: summon, model: M}\n",
       "ValueError", "Expects one homogeneous value for .?limit_all_gathers", "FS-ERR-1 FP-INIT-6"},
      {"limits_differ", "fsdp", stack, differing_limits, build, sharded_and_forward, "ValueError",
       "Expects one homogeneous value for .?limit_all_gathers", "FS-ERR-1 FP-INIT-6"},
      {"originals_differ", "fsdp", stack,
       "[{modules: ['0'], use_orig_params: false}, {modules: [''], use_orig_params: true}]", build,
       sharded_and_forward, "ValueError", "Expects one homogeneous value for .?_use_orig_params",
       "FS-ERR-1 FP-INIT-6"},
      {"flat_part_ran_first", "fsdp", stack, nested,
       "build: M\nshard: M\nforward: {input: narrow, model: M, module: '0', output: A, grad: false}\n",
       forwards, "AssertionError", "Non-root FSDP instance's `_is_root` should not have been set",
       "FS-ERR-1"},
      {"second_hook", "fsdp", stack, nested, "build: M\nshard: M\nregister_comm_hook: M\n",
       "register_comm_hook: M\n", "AssertionError", "A communication hook is already registered",
       "FP-HOOK-4"},
      {"gradients_of_gradients", "fsdp", squares, root, ran, "backward: {loss: A_loss, create_graph: true}\n",
       "RuntimeError", "FSDP does not support gradients of gradients", "FP-GRAD-5"},
      {"first_rank_writes", "fsdp", stack, nested, made,
       "within: {scope: summon, model: M, rank0_only: true}\n", "NotImplementedError", "is not supported",
       "FS-ERR-1 FP-SUMMON-5"},
      {"gradients_of_flat_parameters", "fsdp", stack, nested, made,
       "within: {scope: summon, model: M, with_grads: true}\n", "NotImplementedError", "is not supported",
       "FS-ERR-1 FP-SUMMON-5"},
      {"scope_in_forward", "fsdp", stack, nested,
       "build: M\nshard: M\nmeanwhile: {pass: forward, module: '1', model: M, do: summon}\n", forwards,
       "AssertionError", "Cannot manually unshard parameters during forward/backward",
       "FS-ERR-1 FP-SUMMON-5"},
      {"gradients_on_the_host", "fsdp", stack, "[{modules: [''], use_orig_params: true}]", made,
       "within: {scope: summon, model: M, with_grads: true, offload_to_cpu: true}\n", "NotImplementedError",
       "with_grads=True, use_orig_params=True, offload_to_cpu=True is not supported yet",
       "FS-ERR-1 FP-SUMMON-5", false},
      {"left_on_the_host", "fsdp composable", stack, nested, "build: {model: M, device: host}\nshard: M\n",
       forwards, "RuntimeError", "An FSDP-managed module unexpectedly has parameters on cpu", "FS-ERR-1",
       true, false, nullptr, false, true},
      {"changed_while_whole", "fsdp", single,
       "[{modules: [''], use_orig_params: true, sharding_strategy: SHARD_GRAD_OP}]", ran_and_changed,
       "backward: A_loss\n", "AssertionError",
       "between forward and backward for HandleShardingStrategy.SHARD_GRAD_OP$", "FS-ERR-1 FP-WB-4", true,
       true},
      {"changed_while_whole_over_replicas", "fsdp", single,
       "[{modules: [''], use_orig_params: true, sharding_strategy: _HYBRID_SHARD_ZERO2}], mesh: [1, W]",
       ran_and_changed, "backward: A_loss\n", "AssertionError",
       "between forward and backward for HandleShardingStrategy._HYBRID_SHARD_ZERO2$", "FS-ERR-1 FP-WB-4",
       true, true},
      {"replaced_in_another_shape", "fsdp", stack,
       "[{modules: [''], use_orig_params: true, sharding_strategy: NO_SHARD}]",
       backward + "mutate: {model: M, parameter: 1.weight, what: value, how: replace, fill: 2, grow: 1}\n",
       forwards, "RuntimeError", "Expects torch.Size..16.. but got", "FS-ERR-1 FP-WB-6"},
      {"shared_replaced", "fsdp", tied,
       "[{modules: [''], use_orig_params: true, sharding_strategy: NO_SHARD}]",
       made + std::string("mutate: {model: M, parameter: a.weight, what: value, how: replace, fill: 2}\n"),
       forwards, "NotImplementedError", "Changing shared parameters is not supported yet",
       "FS-ERR-1 FP-WB-7"},
      {"clip_in_scope", "fsdp", stack, nested, made,
       "clip_grad_norm: {model: M, max_norm: 1, into: A_norm}\n", "", "", "FP-SUMMON-5", false, false,
       nullptr, true},
      {"load_in_scope", "fsdp", stack, nested,
       "build: M\nshard: M\nstate_dict: {as: A, model: M, kind: full}\n", loads, "", "", "FP-SUMMON-5", false,
       false, nullptr, true},
      {"state_in_forward", "fsdp", stack, nested,
       "build: M\nshard: M\nmeanwhile: {pass: forward, module: '1', model: M, do: state_dict}\n", forwards,
       "AssertionError", "", "FS-ERR-1 FP-SUMMON-5"},
      {"scope_in_backward", "fsdp", stack, nested,
       "build: M\nshard: M\nforward: {input: narrow, model: M, output: A}\nloss: {kind: sum, of: A, into: "
       "A_loss}\n"
       "meanwhile: {pass: backward, module: '0', model: M, do: summon}\n",
       "backward: A_loss\n", "AssertionError", "Cannot manually unshard parameters during forward/backward",
       "FS-ERR-1 FP-SUMMON-5"},
      {"state_in_backward", "fsdp", stack, nested,
       "build: M\nshard: M\nforward: {input: narrow, model: M, output: A}\nloss: {kind: sum, of: A, into: "
       "A_loss}\n"
       "meanwhile: {pass: backward, module: '0', model: M, do: state_dict}\n",
       "backward: A_loss\n", "AssertionError", "", "FS-ERR-1 FP-SUMMON-5"},
      {"flat_state_lacks", "fsdp", stack_with_bias, nested, with_full_state, loads, "RuntimeError",
       "1[.]bias", "FP-STATE-9", true, false, stack},
      {"flat_state_exceeds", "fsdp", stack, nested, with_sharded_state, loads, "RuntimeError", "1[.]bias",
       "FP-STATE-9", true, false, stack_with_bias},
      {"flat_state_of_another_shape", "fsdp", stack, nested, with_full_state, loads, "RuntimeError",
       "1[.]weight", "FP-STATE-9", true, false, stack_of_other_shape},
      {"flat_buffer_of_another_shape", "fsdp", with_buffer, root, with_full_state, loads, "RuntimeError",
       "shift", "FP-STATE-9", true, false, with_other_buffer},
      {"local_state_of_another", "fsdp", stack, nested, with_local_state, loads, "RuntimeError", "mismatch",
       "FP-STATE-10", false, false, stack_of_other_shape},
      {"local_state_of_nearly_its_size", "fsdp", stack, root, with_local_state, loads, "RuntimeError",
       "mismatch", "FP-STATE-10", false, false, stack_of_nearly_its_size},
      {"flat_optimizer_state_of_another_shape", "fsdp", stack, nested, trained,
       "optimizer_state_dict: {as: A, optimizer: O, kind: full}\nload_optimizer_state_dict: {from: A, "
       "optimizer: A}\n",
       "", "shape|size", "FP-OPT-4", true, false, stack_of_other_shape},
      {"flat_optimizer_state_exceeds", "fsdp", stack, nested, trained,
       "optimizer_state_dict: {as: A, optimizer: O, kind: sharded}\nload_optimizer_state_dict: {from: A, "
       "optimizer: A}\n",
       "RuntimeError", "1[.]bias", "FP-OPT-4", false, false, stack_with_bias},
  };
  return rows;
}

// Whose model was sharded and stands outside of a pass: it is what it was, and trains.
bool trains_on(const std::string& name) {
  static const std::set<std::string> names = {"gather_ahead_no_unit",
                                              "gather_ahead_no_unit_in_backward",
                                              "state_lacks",
                                              "state_exceeds",
                                              "state_of_another_shape",
                                              "buffer_of_another_shape",
                                              "optimizer_state_of_another_shape",
                                              "optimizer_state_of_one_element",
                                              "optimizer_state_exceeds",
                                              "second_hook",
                                              "first_rank_writes",
                                              "gradients_of_flat_parameters",
                                              "clip_in_scope",
                                              "load_in_scope",
                                              "scope_in_forward",
                                              "state_in_forward",
                                              "flat_state_lacks",
                                              "flat_state_exceeds",
                                              "flat_state_of_another_shape",
                                              "flat_buffer_of_another_shape",
                                              "local_state_of_another",
                                              "local_state_of_nearly_its_size",
                                              "flat_optimizer_state_of_another_shape",
                                              "flat_optimizer_state_exceeds"};
  return names.contains(name);
}

const Refusal& find(const std::string& name) {
  for (const Refusal& each : table())
    if (name == each.name) return each;
  throw std::logic_error("no refusal is called " + name);
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, at);)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

bool is_for(const Refusal& refusal, const Sketch& sketch) {
  const std::vector<std::string> apis = split(refusal.apis, ' ');
  return std::find(apis.begin(), apis.end(), sketch.api) != apis.end() &&
         (!refusal.needs_ranks || sketch.world > 1) && (!refusal.on_device || sketch.offload);
}

bool is_letter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

// Whole words only: `A_loss` begins with a placeholder, `AssertionError` does not.
std::string filled_in(const std::string& text, const Sketch& sketch, int number) {
  const std::vector<std::pair<std::string, std::string>> values = {
      {"M", fmt::format("refused{}", number)},
      {"O", fmt::format("another{}", number)},
      {"A", fmt::format("attempt{}", number)},
      {"A_loss", fmt::format("attempt{}_loss", number)},
      {"A_on", fmt::format("on{}", number)},
      {"A_on_loss", fmt::format("on{}_loss", number)},
      {"A_scaled", fmt::format("attempt{}_scaled", number)},
      {"W", std::to_string(sketch.world)},
      {"W1", std::to_string(sketch.world + 1)}};
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i;
    while (end < text.size() && is_letter(text[end])) ++end;
    const std::string word = text.substr(i, end - i);
    const auto value =
        std::find_if(values.begin(), values.end(), [&](const auto& each) { return each.first == word; });
    result += value == values.end() ? word : value->second;
    if (end < text.size()) result += text[end++];
    i = end;
  }
  return result;
}

}  // namespace

std::vector<std::string> refusals_for(const Sketch& sketch) {
  std::vector<std::string> names;
  for (const Refusal& each : table())
    if (is_for(each, sketch)) names.push_back(each.name);
  return names;
}

bool can_be_refused(const std::string& name, const Sketch& sketch) {
  return is_for(find(name), sketch);
}

bool pytorch_refuses(const std::string& name) {
  return find(name).by_pytorch;
}

RefusalText refusal_text(const std::string& name, const Sketch& sketch, int number) {
  const Refusal& refusal = find(name);
  const auto fill = [&](const std::string& text) { return filled_in(text, sketch, number); };
  RefusalText text;
  text.clauses = split(refusal.clauses, ' ');
  const std::string plan = fmt::format("{{api: {}, units: {}}}\n", sketch.api, refusal.units);
  text.models = fill(fmt::format("  M: {}\n", refusal.model));
  text.plans = fill("  M: " + plan);
  if (refusal.other) {
    text.models += fill(fmt::format("  O: {}\n", refusal.other));
    text.plans += fill("  O: " + plan);
    text.steps = fill("  - build: O\n  - shard: O\n");
  }
  for (const std::string& each : split(refusal.before, '\n')) text.steps += fill("  - " + each + "\n");
  const std::string indent = refusal.in_scope ? "      " : "  ";
  if (refusal.in_scope) text.steps += fill("  - within: {scope: summon, model: M}\n    do:\n");
  text.steps += fill(indent + "- attempt: A\n" + indent + "  do:\n");
  for (const std::string& each : split(refusal.refused, '\n')) {
    text.steps += fill(indent + "    - " + each + "\n");
    if (each.starts_with("within")) text.steps += indent + "      do: [{delay: 0}]\n";
  }
  Json error = {{"attempt", fill("A")}, {"ranks", "all"}};
  if (*refusal.type) error["type"] = refusal.type;
  if (*refusal.message) error["message"] = refusal.message;
  text.expectations = fmt::format("  - error: {}\n    clause: {}\n", error.dump(), Json(text.clauses).dump());
  if (!trains_on(name)) return text;
  text.steps += fill(
      "  - forward: {input: narrow, model: M, output: A_on}\n"
      "  - loss: {kind: sum, of: A_on, into: A_on_loss}\n  - backward: A_on_loss\n"
      "  - observe: {what: [gradients], model: M}\n    label: A_on\n");
  const std::string clause = sketch.api == "fully_shard" ? "FS-RED-2" : "FP-RED-2";
  text.clauses.push_back(clause);
  text.expectations +=
      fill("  - equal: {what: [gradients], to: [reference], tolerance: exact}\n    label: A_on\n") +
      fmt::format("    clause: {}\n", clause);
  return text;
}

}  // namespace fsdp_cts::generate
