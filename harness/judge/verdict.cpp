#include "harness/judge/verdict.hpp"

#include <fmt/format.h>

#include <array>
#include <stdexcept>

namespace fsdp_cts {
namespace {

constexpr std::array<std::string_view, 11> names = {"pass",  "xfail", "skipped",    "unsupported",
                                                    "xpass", "flaky", "unresolved", "fail",
                                                    "crash", "hang",  "setup_error"};

}  // namespace

std::string_view verdict_name(VerdictKind kind) {
  return names.at(static_cast<std::size_t>(kind));
}

VerdictKind verdict_from_name(std::string_view name) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<VerdictKind>(i);
  }
  throw std::invalid_argument(fmt::format("'{}' is no verdict; there are {}", name, fmt::join(names, ", ")));
}

}  // namespace fsdp_cts
