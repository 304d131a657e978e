#include "fsdp/wrap/enable_wrap.hpp"

#include <optional>
#include <utility>

#include "fsdp/errors.hpp"
#include "fsdp/flat/fully_sharded_data_parallel.hpp"
#include "fsdp/wrap/wrap_rule.hpp"

namespace fsdp::flat {
namespace {

std::optional<FSDPOptions>& context() {
  static std::optional<FSDPOptions> options;
  return options;
}

}  // namespace

EnableWrap::EnableWrap(FSDPOptions options) {
  if (context()) {
    throw NotImplementedError(
        "You are already within an autowrap context and we currently do not supported nested autowrap.");
  }
  context() = std::move(options);
}

EnableWrap::~EnableWrap() {
  context().reset();
}

void wrap_module(const std::shared_ptr<torch::nn::Module>& module, const OptionsOverride& explicit_options) {
  FSDPOptions options = context().value_or(FSDPOptions{});
  FSDPOptions wanted = options;
  if (explicit_options) explicit_options(wanted);
  const WrapRule& rule = wrap_rule(wanted);
  if (rule.wraps(context().has_value()))
    FullyShardedDataParallel(module, rule.merged(std::move(options), explicit_options));
}

}  // namespace fsdp::flat
