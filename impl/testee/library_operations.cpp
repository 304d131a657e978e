#include "impl/testee/library_operations.hpp"

#include "fsdp/errors.hpp"
#include "fsdp/mesh.hpp"

namespace fsdp_cts::testee {

sdk::Identity LibraryOperations::identity() const {
  const Transport& transport = library_->settings.transport;
  const std::string device = transport.device.is_cpu() ? "cpu" : "cuda";
  return {
      library_->settings.name,   "0.1.0", {"fully_shard", "fsdp", "composable"}, transport.backend, device,
      transport.reduction_order, {}};
}

void LibraryOperations::rendezvous(const sdk::Case&) {
  library_->tap.record_into(context().trace);
  if (library_->world) return;
  library_->world = library_->tap.under(make_world(library_->settings.transport));
  fsdp::set_default_communicator(library_->world);
}

std::optional<sdk::ErrorReport> LibraryOperations::describe(std::exception_ptr error) const {
  try {
    std::rethrow_exception(error);
  } catch (const fsdp::Error& known) {
    return sdk::ErrorReport{known.python_class(), known.what(), ""};
  } catch (...) {
    return std::nullopt;
  }
}

void LibraryOperations::foreach_mul(const std::vector<at::Tensor>& tensors, double factor) {
  const auto& faulty = library_->settings.foreach_mul;
  return faulty ? faulty(tensors, factor) : sdk::Operations::foreach_mul(tensors, factor);
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
