#include "impl/testee/library_operations.hpp"

#include <thread>

#include "fsdp/checkpoint.hpp"
#include "fsdp/comm/mesh.hpp"
#include "fsdp/errors.hpp"
#include "fsdp/fully_shard.hpp"
#include "fsdp/grad_scaler.hpp"
#include "impl/testee/checkpoints.hpp"
#include "impl/testee/optimizers.hpp"
#include "impl/testee/state_dicts.hpp"

namespace fsdp_cts::testee {
namespace {

class Scaler : public sdk::Scaler {
 public:
  Scaler(const fsdp::optim::GradScalerOptions& options, sdk::Optimizer& optimizer)
      : scaler_(options), optimizer_(optimizer) {}
  at::Tensor scale(const at::Tensor& loss) override { return scaler_.scale(loss); }
  void unscale() override { scaler_.unscale_(optimizer_.tensors()); }
  void step() override {
    scaler_.step(optimizer_.tensors(), [this] { optimizer_.step(); });
  }
  void update() override { scaler_.update(); }
  double value() const override { return scaler_.get_scale(); }

 private:
  fsdp::optim::GradScaler scaler_;
  sdk::Optimizer& optimizer_;
};

}  // namespace

sdk::Identity LibraryOperations::identity() const {
  const Transport& transport = library_->settings.transport;
  const std::string device = c10::DeviceTypeName(transport.device.type(), /*lower_case=*/true);
  return {library_->settings.name,
          FSDP_CTS_VERSION,
          {"fully_shard", "fsdp", "composable"},
          transport.backend,
          device,
          transport.reduction_order,
          {}};
}

void LibraryOperations::rendezvous(const sdk::Case& a_case) {
  if (library_->settings.case_begins) library_->settings.case_begins(a_case.id);
  library_->tap.record_into(context().trace);
  if (!library_->world) {
    library_->world = library_->tap.under(make_world(library_->settings.transport));
    fsdp::set_default_communicator(library_->world);
  }
  if (Simulation* simulation = this->simulation()) simulation->begin_case(a_case.id);
}

void LibraryOperations::end_case() {
  library_->tap.record_into(nullptr);
  if (Simulation* simulation = this->simulation()) simulation->end_case();
}

Simulation* LibraryOperations::simulation() const {
  return library_->settings.transport.simulation.get();
}

std::shared_ptr<void> LibraryOperations::observing() {
  return simulation() ? simulation()->unobserved() : nullptr;
}

sdk::Json LibraryOperations::device_use() {
  return simulation() ? simulation()->use() : sdk::Json();
}

std::vector<sdk::Json> LibraryOperations::device_findings() {
  return simulation() ? simulation()->findings() : std::vector<sdk::Json>();
}

std::optional<std::int64_t> LibraryOperations::device_kept_bytes() {
  return simulation() ? std::optional(simulation()->kept_bytes()) : std::nullopt;
}

std::optional<std::uint64_t> LibraryOperations::device_launches() {
  return simulation() ? std::optional(simulation()->launches()) : std::nullopt;
}

Library::Library(Settings settings_) : settings(std::move(settings_)) {
  if (settings.transport.simulation)
    delays.count_only(
        [this](std::chrono::milliseconds duration) { settings.transport.simulation->delay(duration); });
  tap.wait_by([this](std::chrono::milliseconds duration) { delays.wait(duration); });
}

void Delays::wait(std::chrono::milliseconds duration) {
  if (!hold_up_) return std::this_thread::sleep_for(duration);
  counted_ = counted_.load() + duration;
  hold_up_(duration);
}

void LibraryOperations::sleep(std::chrono::milliseconds duration) {
  library_->delays.wait(duration);
}

std::map<std::string, std::int64_t> LibraryOperations::virtual_time() {
  const auto stretch = simulation() ? simulation()->end_stretch() : std::nullopt;
  if (!stretch) return {};
  simulation()->begin_stretch();
  return {{"duration", stretch->duration.count()},
          {"compute", stretch->compute.count()},
          {"communication", stretch->communication.count()},
          {"exposed_communication", stretch->exposed_communication.count()}};
}

std::chrono::milliseconds LibraryOperations::clock() const {
  return sdk::Operations::clock() + library_->delays.counted();
}

std::function<void(sdk::Module&)> LibraryOperations::to_meta() {
  return [](sdk::Module& module) { fsdp::to_meta(module); };
}

std::unique_ptr<sdk::Scaler> LibraryOperations::make_scaler(sdk::Model&, sdk::Optimizer& optimizer,
                                                            const sdk::Json& verb) {
  const sdk::ScalerSettings settings = sdk::scaler_settings(verb);
  return std::make_unique<Scaler>(
      fsdp::optim::GradScalerOptions{library_->world, settings.init_scale, settings.growth_factor,
                                     settings.backoff_factor, settings.growth_interval},
      optimizer);
}

fsdp::ShardedStateDict LibraryOperations::shards(sdk::Model& model) {
  throw sdk::Error("NotImplementedError",
                   model.instance + " is not sharded, and checkpoints are of sharded models");
}

void LibraryOperations::save_checkpoint(const sdk::Checkpoint& checkpoint) {
  const auto optimizer_state = [&](const char* kind) {
    return optimizer_state_dict(*checkpoint.model, *checkpoint.optimizer, kind).native;
  };
  if (checkpoint.format != "safetensors") {
    fsdp::ShardedOptimizerState optimizer;
    if (checkpoint.optimizer)
      optimizer = std::any_cast<fsdp::ShardedOptimizerState>(optimizer_state("sharded"));
    const auto format =
        checkpoint.format == "dcp" ? fsdp::CheckpointFormat::torch_distributed : fsdp::CheckpointFormat::own;
    return fsdp::save_checkpoint(checkpoint.folder, library_->world, shards(*checkpoint.model), optimizer,
                                 {format});
  }
  WholeState state{full_of(state_dict(*checkpoint.model, "full")), {}};
  if (checkpoint.optimizer)
    state.optimizer = std::any_cast<fsdp::FullOptimizerState>(optimizer_state("full"));
  if (context().rank == 0) write_whole_state(checkpoint.folder, state);
}

void LibraryOperations::load_checkpoint(const sdk::Checkpoint& checkpoint) {
  auto* optimizer = dynamic_cast<LibraryOptimizer*>(checkpoint.optimizer);
  if (checkpoint.format != "safetensors") {
    const fsdp::OptimizerState state =
        fsdp::load_checkpoint(checkpoint.folder, library_->world, *checkpoint.model->module,
                              {.optimizer_state = optimizer != nullptr});
    if (optimizer) optimizer->load_library_state(state);
    return;
  }
  const WholeState state = read_whole_state(checkpoint.folder);
  load_state_dict(*checkpoint.model, state_of(state.model));
  if (optimizer)
    load_optimizer_state_dict(*checkpoint.model, *optimizer, sdk::StateDict{{}, state.optimizer.value()});
}

std::optional<sdk::ErrorReport> LibraryOperations::describe(std::exception_ptr error) const {
  // What PyTorch's FSDP raises where the library throws this.
  try {
    std::rethrow_exception(error);
  } catch (const fsdp::InvalidArgument& known) {
    return sdk::ErrorReport{"ValueError", known.what(), ""};
  } catch (const fsdp::InvalidState& known) {
    return sdk::ErrorReport{"AssertionError", known.what(), ""};
  } catch (const fsdp::NotImplemented& known) {
    return sdk::ErrorReport{"NotImplementedError", known.what(), ""};
  } catch (const fsdp::Error& known) {
    return sdk::ErrorReport{"RuntimeError", known.what(), ""};
  } catch (...) {
    return std::nullopt;
  }
}

std::shared_ptr<torch::nn::Module> module_at(const sdk::Model& model, const sdk::Json& path) {
  return model.module->child(path.get<std::string>()).shared_from_this();
}

std::vector<std::shared_ptr<torch::nn::Module>> modules_at(const sdk::Model& model, const sdk::Json& paths) {
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
  for (const sdk::Json& path : paths) modules.push_back(module_at(model, path));
  return modules;
}

}  // namespace fsdp_cts::testee
