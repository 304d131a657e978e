// A scenario before it is written: what a draw decides and what a smaller one can do without. Names, shapes
// of inputs and counts of collectives are no part of it; they follow from it (write.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/scenario/case.hpp"

namespace fsdp_cts::generate {

// A module: a block of the root's, and for some blocks a module inside; the root itself is {-1, -1}.
struct ModuleAt {
  int block = -1;
  int inner = -1;
  bool is_root() const { return block < 0; }
  auto operator<=>(const ModuleAt&) const = default;
};

// One parameter, or with an empty name all that the module holds.
struct ParameterAt {
  ModuleAt module;
  std::string name;
  auto operator<=>(const ParameterAt&) const = default;
};

enum class BlockKind {
  linear,    // Linear(in, width)
  relu,      // no parameters
  nested,    // Sequential of Linear(in, middle), perhaps ReLU, Linear(middle, width)
  residual,  // x + inner(x)
  twice,     // inner(inner(x)): one module, two calls
  tied,      // a, then b, whose weights are one tensor
  spare,     // used(x), beside a layer that no forward reaches
  gain,      // x * gain: a parameter of the block's own
  shift,     // x + shift: a buffer of the block's own
  empty,     // x, beside a parameter of the block's own that has no elements (fully_shard)
  side,      // the last: a Linear of the model's input, whose output is the model's second
};

struct Block {
  BlockKind kind = BlockKind::linear;
  int width = 1;   // of what comes out; residual, twice, tied, gain, shift, empty and side change no width
  int middle = 1;  // nested
  bool bias = false;
  bool relu = false;       // nested: between the two
  bool recompute = false;  // an activation checkpoint around it
  bool odd = false;        // residual, twice: a blank and a percent sign in the inner module's name
  bool scalar = false;     // shift: the buffer has no dimensions
  bool operator==(const Block&) const = default;
};

struct Unit {
  std::vector<ModuleAt> modules;   // more than one: fully_shard on a list
  Json settings = Json::object();  // as in a plan, without names of modules and parameters
  int divide_factor = 0;           // fully_shard; 0: the mean over ranks
  bool force_sum = false;          // fully_shard
  double hook =
      0;  // fully_shard: what a hook multiplies its reduced gradient by before it adds to it; 0: no hook
  bool unshard_in_backward = true;  // fully_shard; otherwise it stays whole after a forward
  bool operator==(const Unit&) const = default;
};

// Something done before a micro-batch, or between backward and step, that is no training step.
enum class AsideKind {
  eval_forward,
  no_grad_forward,
  part_forward,         // of a unit alone, without gradients
  unshard,              // fully_shard: and left so; begun only, if `value`
  unshard_and_reshard,  // fully_shard
  summon_mutate,        // FSDP1: a parameter filled while summoned
  replace,              // FSDP1 with original parameters: the user's own tensor in its place
  write,                // a parameter filled in place, as it is shown: each rank its part
  write_gradient,       // before a step: the same with its gradient
  drop_gradients,       // FSDP1: those of earlier micro-batches, to none if `value`, else to zero
  assign_gradient,      // FSDP1 with original parameters: to one that waits, as `options` say how
  // Save, zero, load; FSDP1 with original parameters: before the load another tensor takes the place of the parameter, if there is one.
  full_state,
  sharded_state,
  first_rank_state,  // a full one for the first rank alone; fully_shard: zero, and load it from there
  local_state,       // FSDP1: save, zero, load
  part_state,        // of a unit alone, sharded if `value`: save, load
  foreign_state,     // of a second model in the dtype of `options`, sharded if `value`: save, load
  // Save, and load into a new optimizer, or with `options` that say `same` into the one that it is of; a full one if `value`.
  optimizer_state,
  // FSDP1: a scope with `options`, over the parameter's unit alone if these say `part`, in which the parameter is filled unless
  // that is an error; with `value` its gradient is, too
  summon,
  refused_scope,    // fsdp: one in which the first rank alone would write
  failed_forward,   // a batch that is too wide
  failed_backward,  // gradients that are not finite, met by the guard of the model
  set_requires_grad,
  set_reshard_after_forward,  // fully_shard
  clip,                       // of what gradients are left, and there may be none
};

struct Aside {
  AsideKind kind = AsideKind::eval_forward;
  ParameterAt at;
  bool value = false;
  Json options = Json::object();
  bool operator==(const Aside&) const = default;
};

// Which of two outputs the loss is of, where there is a side.
enum class Uses { both, main, side };

struct MicroBatch {
  std::vector<Aside> before;
  bool sync = true;
  bool nested = false;                 // FSDP1: inside of its no_sync another one has been entered and left
  bool reshard_after_backward = true;  // fully_shard
  bool last_backward = true;           // fully_shard
  bool all_reduce = true;              // fully_shard
  Uses uses = Uses::both;
  bool input_gradient = false;
  bool looked_at = false;  // parameters between forward and backward
  bool eval = false;       // in evaluation mode
  bool loud = false;       // with gradients that a small dtype cannot add to those of others without rounding
  bool operator==(const MicroBatch&) const = default;
};

enum class ZeroGrad { none, zero, keep };
enum class Clip { none, sum, largest };  // by which norm
enum class Prefetch { by_itself, listed, listed_anew };

struct Iteration {
  ZeroGrad zero_grad = ZeroGrad::none;
  std::vector<MicroBatch> micro_batches;
  Clip clip = Clip::none;
  bool step = true;
  std::vector<Aside> before_step;
  bool unscale = false;  // by hand, where there is a scaler
  std::string overflow;  // "inf" or "nan": what a gradient holds, where there is a scaler; "": it is finite
  bool late = false;     // gradients are set to zero between the first forward and its backward
  bool operator==(const Iteration&) const = default;
};

// A second case: what the program ends with is saved, and a second model, sharded otherwise, loads it.
struct Resumed {
  std::string format;      // of the checkpoint
  std::string api;         // of the second model
  bool root_alone = true;  // its only unit; otherwise the modules that the first model's units have
  std::string over;        // format of another checkpoint, which it is saved over; "": there is none
  bool operator==(const Resumed&) const = default;
};

struct Sketch {
  std::string api = "fully_shard";
  int world = 1;
  std::vector<int> mesh;        // [replicate, shard] or empty
  bool mesh_of_groups = false;  // fully_shard: made from groups that are there already
  int in = 1;                   // width of the input
  int rows = 1;
  std::vector<Block> blocks;
  bool root_gain = false;         // the root is a Graph with a parameter of its own
  std::vector<Unit> units;        // in order of calls; the root's is the last
  Json auto_wrap;                 // FSDP1: the policy of the root's call, which then is the only one
  bool in_context = false;        // fsdp: the units are asked for by wrap(), inside a context
  std::vector<ModuleAt> outside;  // fsdp: asked for outside of any, so that no unit is made
  std::vector<ParameterAt> frozen, ignored;
  std::string dtype = "float32";     // the model is cast to it
  bool cast_late = false;            // when it is sharded already
  bool async_gathers = false;        // fully_shard: on the current stream
  std::vector<ParameterAt> halves;   // factors that are cast to bfloat16 before they are sharded
  std::vector<ParameterAt> columns;  // fully_shard: weights that are cut along their second dimension
  bool meta = false;                 // built without values
  bool synced = false;       // FSDP1: ranks begin with values of their own, and units with the first one's
  bool offload = false;      // of parameters, which takes an accelerator
  bool host_inputs = false;  // with offloaded parameters: inputs come out of host memory
  double comm_hook = 0;      // fsdp: what a hook multiplies the sum over ranks by; 0: no hook
  Prefetch prefetch = Prefetch::by_itself;  // fully_shard, of a chain of layers
  bool guard = false;                 // backward looks behind the last block whether gradients are finite
  double scale = 0;                   // of the loss, by a gradient scaler; 0: none
  bool step_in_backward = false;      // fully_shard
  std::vector<std::string> refusals;  // programs that must be refused (refusals.hpp), at the end
  double lr = 1;                      // a power of two
  double momentum = 0;                // 0 or a power of two
  double weight_decay = 0;            // 0 or a power of two
  std::string x_dtype = "float32";
  std::string second;  // dtype of a second input, which is added to the first; "": there is none
  bool full_precision_in_eval = false;  // FSDP1's switch
  bool order_checked = false;           // FSDP1's, too: every forward is compared with the first
  std::vector<Iteration> iterations;
  std::optional<Resumed> resumed;
  std::int64_t data_seed = 0;  // with which nothing rounds
  bool operator==(const Sketch&) const = default;
};

// What follows from a sketch.
struct ParameterInfo {
  ParameterAt at;
  std::string name;  // as in the model
  int block_order;   // of its module in the forward
  bool used;
};

int width_before(const Sketch& sketch, std::size_t block);
std::string inner_name(const Block& block, int inner = 0);
std::string path_of(const Sketch& sketch, const ModuleAt& module);
std::string class_of(const Sketch& sketch, const ModuleAt& module);
std::string name_of(const Sketch& sketch, const ParameterAt& parameter);
// Every module that can be a unit, the root last.
std::vector<ModuleAt> unit_candidates(const Sketch& sketch);
std::vector<ParameterInfo> parameters_of(const Sketch& sketch);
int runs_of(const Sketch& sketch, const ModuleAt& module);  // in one forward
bool holds(const ModuleAt& outer, const ModuleAt& inner);
bool takes(const ParameterAt& pattern, const ParameterAt& parameter);
// The unit that owns it: the innermost around it; -1 for an ignored one.
int unit_of(const Sketch& sketch, const ParameterAt& parameter);
bool is_sharded(const Sketch& sketch, const Unit& unit);
int shard_group(const Sketch& sketch, const Unit& unit);

bool is_fsdp1(const Sketch& sketch);  // the wrapper or the composable form
bool computes_in(const Unit& unit);   // in a param_dtype
bool keeps_low_gradients(const Sketch& sketch);
Json exact_classes(const Sketch& sketch);  // whose modules below the root keep full precision beside a policy
bool sums_in_full_precision(const Sketch& sketch);
bool has_small_dtype(const Sketch& sketch);                    // the whole model
int width_into(const Sketch& sketch, const ModuleAt& module);  // of what a module is called with
bool leaves_whole(AsideKind kind);  // units that it does not free, for what comes next
bool original_parameters(const Sketch& sketch, const Unit& unit);
bool has_gradient(const Sketch& sketch, const ParameterAt& parameter);  // after every backward
bool any_aside(const Sketch& sketch, const std::function<bool(const Aside&)>& is_one);
bool has_aside(const Sketch& sketch, AsideKind kind);
bool any_micro_batch(const Sketch& sketch, const std::function<bool(const MicroBatch&)>& is_one);
bool has_block(const Sketch& sketch, BlockKind kind);
bool has_side(const Sketch& sketch);           // a second output
bool leaves_layers_out(const Sketch& sketch);  // where no loss, or not every one, comes to them
bool is_frozen(const Sketch& sketch, const ParameterAt& parameter);  // from the beginning
// Whether a loss of these outputs asks for its gradient.
bool reaches(Uses uses, const Sketch& sketch, const ParameterInfo& parameter);
bool recomputes(const Sketch& sketch);           // any block
bool has_optimizer_state(const Sketch& sketch);  // at the end
bool calls_root_as_graph(const Sketch& sketch);
std::vector<int> shape_of(const Sketch& sketch, const ParameterAt& parameter);
int elements_of(const Sketch& sketch, const ParameterAt& parameter);
constexpr int flat_alignment = 8;  // of parameters in a flat one, in elements of two bytes
// Of each unit: whether it is whole between a forward and what comes after it.
bool frees_after_forward(const Sketch& sketch, const Unit& unit);

// What documentation or a clause calls an error, or leaves open, with the clause; nothing if the sketch may
// be acted out. Draws are made legal, and what shrinking makes must be.
std::optional<std::string> why_illegal(const Sketch& sketch);

}  // namespace fsdp_cts::generate
