// Sends c10's warnings of the current thread into a context, as long as it exists.
#pragma once

#include <c10/util/Exception.h>

#include "harness/sdk/cpp/context.hpp"

namespace fsdp_cts::sdk {

class WarningSink : public c10::WarningHandler {
 public:
  explicit WarningSink(Context& context) : context_(context), guard_(this) {}

  void process(const c10::Warning& warning) override {
    const bool deprecation = std::holds_alternative<c10::Warning::DeprecationWarning>(warning.type());
    context_.warn(deprecation ? "DeprecationWarning" : "UserWarning", warning.msg());
  }

 private:
  Context& context_;
  c10::WarningUtils::WarningHandlerGuard guard_;
};

}  // namespace fsdp_cts::sdk
