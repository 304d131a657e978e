// One group of parameters that is gathered, cast and reduced together, as one simulated rank sees it.
//
// A simulated rank has the whole model. Outside forward the module slots hold the masters: what user code
// sees and optimizers update. During the forward of the unit's modules the slots hold compute parameters,
// leaves in the compute dtype on which autograd collects this rank's gradient. After backward the gradients
// of all ranks are reduced into the masters'.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "harness/sdk/cpp/operations.hpp"
#include "reference/reduction.hpp"

namespace fsdp_cts::reference {

struct UnitParameter {
  std::string name;
  std::vector<sdk::Slot> slots;  // the first is where it is registered, the others are ties
  at::Tensor master;
  at::Tensor compute = {};
};

class Unit {
 public:
  Unit(std::vector<std::pair<std::string, sdk::Module*>> modules, std::vector<UnitParameter> parameters);
  virtual ~Unit() = default;
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  // Puts hooks on the modules. The unit must live as long as they do.
  void install();
  // After an exception in forward: masters back into the slots.
  void abandon_forward();
  // After an exception in backward: what this rank has not reduced is dropped, nobody gets a sum of it.
  virtual void abandon_backward();
  // Before autograd runs on this rank.
  virtual void before_backward() = 0;
  // While autograd runs: a forward that is recomputed must find what the first one found.
  void show_compute();
  void show_masters();
  // After autograd ran on all ranks, before `reduce`. Of a group some modules may never have run: the pass is
  // over.
  void end_backward();
  // After autograd ran on all ranks. `peers` are the same unit on every rank, in rank order, this one among
  // them.
  virtual void reduce(const std::vector<Unit*>& peers, Order order) = 0;

  virtual sdk::Unit describe() const = 0;  // what `units` observes

  const std::string& path() const { return modules_.front().first; }
  bool is_inside(const std::string& path) const;  // its module is that one or below it
  std::vector<UnitParameter>& parameters() { return parameters_; }
  sdk::Module& module() const { return *modules_.front().second; }

 protected:
  virtual at::ScalarType compute_dtype(const UnitParameter& parameter) const = 0;
  // Whether backward gives the gathered parameter a gradient, if it is used.
  virtual bool catches_gradient(const UnitParameter& parameter) const {
    return parameter.master.requires_grad();
  }
  virtual sdk::Tensors before_forward(sdk::Tensors inputs) = 0;  // also casts the inputs
  virtual sdk::Tensors after_forward(sdk::Tensors outputs) = 0;  // also casts the outputs
  virtual void watch(const sdk::Tensors&) {}                     // outputs of each of its modules

  std::vector<std::pair<std::string, sdk::Module*>> modules_;  // path and module, the first of a group leads
  std::vector<UnitParameter> parameters_;

 private:
  void unshard();
  void reshard();

  std::vector<std::pair<sdk::Slot, at::Tensor>> hidden_;  // while compute parameters are shown in backward
  std::set<const sdk::Module*> to_run_;  // while the unit is whole in forward: modules that have not run yet
};

// Floating tensors to `dtype`; others, and all when there is none, as they are.
sdk::Tensors cast_floating(sdk::Tensors tensors, std::optional<at::ScalarType> dtype);

// Adds to a master's gradient, or makes it.
void accumulate_gradient(at::Tensor& master, const at::Tensor& gradient);

}  // namespace fsdp_cts::reference
