#include "fsdp/wrap/enable_wrap.hpp"

#include <optional>
#include <utility>

#include "fsdp/errors.hpp"
#include "fsdp/flat/fully_sharded_data_parallel.hpp"

namespace fsdp::flat {
namespace {

std::optional<FSDPOptions>& context() {
  static std::optional<FSDPOptions> options;
  return options;
}

}  // namespace

EnableWrap::EnableWrap(FSDPOptions options) {
  if (context()) {
    throw NotImplemented(
        "You are already within an autowrap context and we currently do not supported nested autowrap.");
  }
  context() = std::move(options);
}

EnableWrap::~EnableWrap() {
  context().reset();
}

void wrap_module(const std::shared_ptr<torch::nn::Module>& module, const OptionsOverride& explicit_options) {
  if (!context()) return;
  FSDPOptions options = *context();
  if (explicit_options) explicit_options(options);
  FullyShardedDataParallel(module, options);
}

}  // namespace fsdp::flat
