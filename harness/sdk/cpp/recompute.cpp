#include "harness/sdk/cpp/recompute.hpp"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>
#include <stdexcept>
#include <utility>

namespace fsdp_cts::sdk {
namespace {

// Gets what autograd saves while it is the current one, in order.
class Saver {
 public:
  virtual ~Saver() = default;
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() = 0;
};

thread_local Saver* current = nullptr;

class WithSaver {
 public:
  explicit WithSaver(Saver& saver) : before_(std::exchange(current, &saver)) {}
  ~WithSaver() { current = before_; }
  WithSaver(const WithSaver&) = delete;
  WithSaver& operator=(const WithSaver&) = delete;

 private:
  Saver* before_;
};

// The hooks of a C++ program have no other place: the default ones are asked of the engine.
class Engine : public torch::autograd::Engine {
 public:
  static torch::autograd::Engine& instance() {
    static Engine engine;
    return engine;
  }
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return current ? current->hooks() : nullptr;
  }
};

// Before any backward: whichever engine runs the first one starts the threads of the devices, for itself alone and
// once in a process.
[[maybe_unused]] const bool installed = [] {
  torch::autograd::set_default_engine_stub(&Engine::instance);
  return true;
}();

// What one call of `recomputed` remembers between its two runs.
class Region {
 public:
  Region(std::function<Tensors(Tensors)> forward, Tensors inputs)
      : forward_(std::move(forward)), inputs_(std::move(inputs)) {}

  std::size_t count() { return saved_count_++; }

  at::Tensor tensor(std::size_t index) {
    if (again_.empty()) run_again();
    return again_.at(index);
  }

 private:
  class Keeper;
  void run_again();

  std::function<Tensors(Tensors)> forward_;
  Tensors inputs_;
  std::size_t saved_count_ = 0;
  Tensors again_;
};

// Packs a number in place of a tensor.
class Number : public torch::autograd::SavedVariableHooks {
 public:
  explicit Number(std::shared_ptr<Region> region) : region_(std::move(region)), index_(region_->count()) {}
  void call_pack_hook(const at::Tensor&) override {}
  at::Tensor call_unpack_hook() override { return region_->tensor(index_); }

 private:
  std::shared_ptr<Region> region_;
  std::size_t index_;
};

class Counter : public Saver {
 public:
  explicit Counter(std::shared_ptr<Region> region) : region_(std::move(region)) {}
  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override {
    return std::make_unique<Number>(region_);
  }

 private:
  std::shared_ptr<Region> region_;
};

// In the second run: the tensors themselves, in the order in which the first run counted them.
class Region::Keeper : public Saver {
 public:
  explicit Keeper(Tensors& kept) : kept_(kept) {}
  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override {
    return std::make_unique<Kept>(kept_);
  }

 private:
  class Kept : public torch::autograd::SavedVariableHooks {
   public:
    explicit Kept(Tensors& kept) : kept_(kept) {}
    void call_pack_hook(const at::Tensor& tensor) override { kept_.push_back(tensor.detach()); }
    at::Tensor call_unpack_hook() override {
      throw std::logic_error("nobody goes backward through a recomputed graph");
    }

   private:
    Tensors& kept_;
  };
  Tensors& kept_;
};

void Region::run_again() {
  const c10::AutoGradMode grad(true);
  Tensors inputs;
  for (const at::Tensor& input : inputs_)
    inputs.push_back(input.detach().set_requires_grad(input.requires_grad()));
  Tensors kept;
  Keeper keeper(kept);
  {
    const WithSaver with(keeper);
    forward_(std::move(inputs));
  }
  if (kept.size() != saved_count_)
    throw std::logic_error("recomputing saved " + std::to_string(kept.size()) + " tensors, the first run " +
                           std::to_string(saved_count_));
  again_ = std::move(kept);
}

}  // namespace

Tensors recomputed(std::function<Tensors(Tensors)> forward, Tensors inputs) {
  if (!c10::GradMode::is_enabled()) return forward(std::move(inputs));
  const auto region = std::make_shared<Region>(forward, inputs);
  Counter counter(region);
  const WithSaver with(counter);
  return forward(std::move(inputs));
}

}  // namespace fsdp_cts::sdk
