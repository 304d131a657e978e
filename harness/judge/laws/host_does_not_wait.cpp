#include <fmt/format.h>

#include <string>

#include "harness/judge/entries.hpp"
#include "harness/judge/laws/laws.hpp"

namespace fsdp_cts {
namespace {

// What a case asks the host to wait for; G-13 names them.
class AllowedWaits {
 public:
  explicit AllowedWaits(const Case& a_case) : program_(a_case.program) {
    if (a_case.plans.is_object()) {
      for (const Json& plan : a_case.plans) take(plan);
    }
    checks_order_ = a_case.switches.is_object() && a_case.switches.contains("TORCH_DISTRIBUTED_DEBUG");
    model_looks_ = a_case.models.dump().find("finite_gradient") != std::string::npos;
  }

  bool contain(int step, const std::string& operation) const {
    if (offload_) return true;
    if (operation == "synchronize an event") return limits_gathers_;
    if (operation == "aten::_local_scalar_dense") return model_looks_;
    if (!operation.starts_with("copy from ")) return false;
    return checks_order_ || hands_over_host_memory(step) || follows_move(step) || gives_gradient_back(step);
  }

 private:
  void take(const Json& plan) {
    if (!plan.is_object() || !plan.contains("units")) return;
    const bool flat = plan.value("api", "") != "fully_shard";
    for (const Json& unit : plan["units"]) {
      offload_ = offload_ || unit.value("cpu_offload", false);
      limits_gathers_ = limits_gathers_ || (flat && unit.value("limit_all_gathers", true));
    }
  }

  // The first forward since the model was moved: shards of a flat parameter may follow then.
  bool follows_move(int step) const {
    while (--step >= 0) {
      if (verb(step) == "move") return true;
      if (verb(step) == "forward") return false;
    }
    return false;
  }

  // The gradient of a leaf that was handed over in host memory goes that way back.
  bool gives_gradient_back(int step) const {
    if (verb(step) != "backward") return false;
    bool host = false, leaf = false;
    while (--step >= 0) {
      host = host || hands_over_host_memory(step);
      leaf = leaf || verb(step) == "leaf";
    }
    return host && leaf;
  }

  std::string verb(int step) const { return at(step).value("verb", ""); }
  bool hands_over_host_memory(int step) const { return at(step).value("host", false); }
  const Json& at(int step) const { return program_.at(static_cast<std::size_t>(step)); }

  const Json& program_;
  bool offload_ = false;
  bool limits_gathers_ = false;
  bool checks_order_ = false;  // FSDP1 compares the ranks' orders of units in its first forward
  bool model_looks_ = false;   // a hook of the model looks at values
};

}  // namespace

void host_does_not_wait(const JudgeContext& context, Outcome& outcome) {
  const AllowedWaits allowed(context.a_case);
  for (const DeviceUse& use : context.run.uses) {
    if (!context.program.contains(use.step)) continue;
    for (const Json& wait : use.message.value("host_waits", Json::array())) {
      const std::string operation = wait.value("operation", "");
      if (allowed.contain(use.step, operation)) continue;
      const std::string scope = wait.value("scope", "");
      Place place{use.step, "device", "", "", use.rank};
      Finding finding = broken_law(
          "G-13", "host_waited", place, context.program,
          fmt::format("rank {}: the host waits for the device in '{}'{}, {} times in this step", use.rank,
                      operation, scope.empty() ? "" : " (in " + scope + ")", wait.value("times", 1)));
      finding.divergence["actual"] = wait;
      outcome.findings.push_back(std::move(finding));
      break;  // the first of a step says it
    }
  }
}

}  // namespace fsdp_cts
