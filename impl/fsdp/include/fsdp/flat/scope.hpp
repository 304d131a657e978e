#pragma once
#include <functional>
#include <utility>

namespace fsdp::flat {

/// Something that lasts until it is left: at once by `leave()`, which may throw, or at the end of the
/// object's life, when an exception is reported as a warning.
class Scope {
 public:
  explicit Scope(std::function<void()> leave) : leave_(std::move(leave)) {}
  Scope(Scope&& other) noexcept : leave_(std::exchange(other.leave_, nullptr)) {}
  Scope& operator=(Scope&&) = delete;
  ~Scope();

  /// Once; further calls do nothing.
  void leave() {
    if (auto leave = std::exchange(leave_, nullptr)) leave();
  }

 private:
  std::function<void()> leave_;
};

}  // namespace fsdp::flat
