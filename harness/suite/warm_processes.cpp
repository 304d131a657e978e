#include "harness/suite/warm_processes.hpp"

#include <algorithm>
#include <tuple>

namespace fsdp_cts {
namespace {

auto identity_of(const Testee& testee) {
  return std::tie(testee.name, testee.command, testee.environment, testee.rank_environment, testee.oracle,
                  testee.forks);
}

}  // namespace

Session& WarmProcesses::session(const SessionOptions& options) {
  if (!session_ || options_ != options) {
    close();
    session_ = std::make_unique<Session>(options);
    options_ = options;
  }
  return *session_;
}

const Testee& WarmProcesses::keep(const Testee& testee) {
  const auto known = std::find_if(testees_.begin(), testees_.end(), [&](const Testee& each) {
    return identity_of(each) == identity_of(testee);
  });
  return known != testees_.end() ? *known : testees_.emplace_back(testee);
}

void WarmProcesses::close() {
  if (session_) session_->close();
  session_.reset();
}

}  // namespace fsdp_cts
