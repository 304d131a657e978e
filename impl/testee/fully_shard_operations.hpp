// The C++ FSDP2 library as a testee: each operation of the suite in terms of the library's public headers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/comm/recording.hpp"
#include "fsdp/fully_shard.hpp"
#include "harness/sdk/cpp/operations.hpp"
#include "impl/testee/transport.hpp"

namespace fsdp_cts::testee {

struct Settings {
  std::string name = "fsdp-cpp";  // of the implementation, as `hello` says it
  Transport transport;
  std::function<fsdp::Seams()>
      seams;  // asked once per sharded instance: a faulty rule may keep state of its own
};

class FullyShardOperations : public sdk::Operations {
 public:
  explicit FullyShardOperations(Settings settings);

  sdk::Identity identity() const override;
  std::optional<std::string> unsupported(const sdk::Case& a_case) const override;
  void rendezvous(const sdk::Case& a_case) override;
  void end_case() override;
  c10::Device device() const override { return settings_.transport.device; }
  std::optional<sdk::ErrorReport> describe(std::exception_ptr error) const override;

  void shard(sdk::Model& model) override;
  void materialize(sdk::Model& model) override;
  std::unique_ptr<sdk::Optimizer> make_optimizer(sdk::Model& model, const sdk::Json& verb) override;
  void control(sdk::Model& model, const sdk::Json& verb) override;
  at::Tensor clip_grad_norm(sdk::Model& model, double max_norm, double norm_type) override;

  std::vector<sdk::Parameter> parameters(sdk::Model& model) override;
  std::vector<sdk::Exposed> full_parameters(sdk::Model& model) override;
  sdk::StateDict state_dict(sdk::Model& model, const std::string& kind) override;
  void load_state_dict(sdk::Model& model, const sdk::StateDict& state) override;

  std::vector<sdk::TraceEvent> drain_trace() override;
  std::vector<sdk::Unit> units(sdk::Model& model) override;
  std::map<std::string, std::int64_t> counters(sdk::Model& model) override;
  std::string training_state(sdk::Model& model) override;

 private:
  void note_collectives();

  Settings settings_;
  std::shared_ptr<fsdp::Trace> trace_ = std::make_shared<fsdp::Trace>();
  std::vector<sdk::TraceEvent> noted_;         // taken from the trace, not yet drained
  std::shared_ptr<fsdp::Communicator> world_;  // made at the first case, kept from case to case
};

}  // namespace fsdp_cts::testee
