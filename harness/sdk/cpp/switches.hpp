// The environment of one case: set at its start, as it was before at its end.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/sdk/cpp/case.hpp"

namespace fsdp_cts::sdk {

class Switches {
 public:
  // Name -> string, or null for unset.
  explicit Switches(const Json& switches) {
    for (const auto& [name, value] : switches.items()) {
      const char* before = std::getenv(name.c_str());
      before_.emplace_back(name, before ? std::optional<std::string>(before) : std::nullopt);
      set(name, value.is_null() ? std::nullopt : std::optional(value.get<std::string>()));
    }
  }
  ~Switches() {
    for (const auto& [name, value] : before_) set(name, value);
  }
  Switches(const Switches&) = delete;
  Switches& operator=(const Switches&) = delete;

 private:
  static void set(const std::string& name, const std::optional<std::string>& value) {
    if (value) {
      setenv(name.c_str(), value->c_str(), 1);
    } else {
      unsetenv(name.c_str());
    }
  }

  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

}  // namespace fsdp_cts::sdk
