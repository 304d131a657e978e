// The reference as a process that speaks the testee protocol for all ranks at once.
#pragma once

#include "harness/sdk/cpp/serve.hpp"

namespace fsdp_cts::reference {

class Oracle : public sdk::Testee {
 public:
  sdk::Identity identity() const override;
  std::optional<std::string> unsupported(const sdk::Case& a_case) const override;
  void act(const sdk::Case& a_case, sdk::Outbox& outbox) override;
};

}  // namespace fsdp_cts::reference
