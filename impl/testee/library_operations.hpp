// What both engines of the library have in common as testees: one world, one tap, one way to say what went
// wrong.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "fsdp/state_dict.hpp"
#include "harness/sdk/cpp/operations.hpp"
#include "impl/testee/collective_tap.hpp"
#include "impl/testee/transport.hpp"

namespace fsdp_cts::testee {

struct Settings {
  std::string name = "fsdp-cpp";  // of the implementation, as `hello` says it
  Transport transport;
  std::function<void(const std::string&)> case_begins;  // may be empty
};

// On the simulated accelerator nothing is late but in virtual time, since what a delay would bring to light is found
// without it: there delays are counted, and hold up the current stream.
class Delays {
 public:
  using HoldUp = std::function<void(std::chrono::milliseconds)>;
  void count_only(HoldUp hold_up) { hold_up_ = std::move(hold_up); }
  void wait(std::chrono::milliseconds duration);
  std::chrono::milliseconds counted() const { return counted_.load(); }

 private:
  HoldUp hold_up_;  // empty: the host waits
  std::atomic<std::chrono::milliseconds> counted_{};
};

// One process's use of the library; all adapters of the process share it.
struct Library {
  explicit Library(Settings settings);
  Settings settings;
  CollectiveTap tap;  // under the world and all its subgroups
  Delays delays;
  std::shared_ptr<fsdp::Communicator> world;  // made at the first case, kept from case to case
};

class LibraryOperations : public sdk::Operations {
 public:
  explicit LibraryOperations(std::shared_ptr<Library> library) : library_(std::move(library)) {}

  sdk::Identity identity() const override;
  void rendezvous(const sdk::Case& a_case) override;
  void end_case() override;
  std::function<void(sdk::Module&)> to_meta() override;
  std::unique_ptr<sdk::Scaler> make_scaler(sdk::Model& model, sdk::Optimizer& optimizer,
                                           const sdk::Json& verb) override;
  void save_checkpoint(const sdk::Checkpoint& checkpoint) override;
  void load_checkpoint(const sdk::Checkpoint& checkpoint) override;
  std::shared_ptr<void> observing() override;
  sdk::Json device_use() override;
  std::vector<sdk::Json> device_findings() override;
  std::optional<std::uint64_t> device_launches() override;
  std::optional<std::int64_t> device_kept_bytes() override;
  void sleep(std::chrono::milliseconds duration) override;
  std::chrono::milliseconds clock() const override;
  std::map<std::string, std::int64_t> virtual_time() override;
  c10::Device device() const override { return library_->settings.transport.device; }
  std::optional<sdk::ErrorReport> describe(std::exception_ptr error) const override;

 protected:
  // This rank's shards of a model under FSDP.
  virtual fsdp::ShardedStateDict shards(sdk::Model& model);
  Library& library() { return *library_; }
  const Library& library() const { return *library_; }
  Simulation* simulation() const;  // null: another device

 private:
  std::shared_ptr<Library> library_;
};

std::shared_ptr<torch::nn::Module> module_at(const sdk::Model& model, const sdk::Json& path);
std::vector<std::shared_ptr<torch::nn::Module>> modules_at(const sdk::Model& model, const sdk::Json& paths);

}  // namespace fsdp_cts::testee
