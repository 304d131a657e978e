#include "harness/runner/interruption.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

namespace fsdp_cts {
namespace {

// What a signal handler can reach is global: the signal, and whom to wake.
std::atomic<int> received = 0;
std::atomic<int> wake_up = -1;

void note(int signal) {
  const int saved = errno;
  received = signal;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_up, &one, sizeof(one));
  errno = saved;
}

}  // namespace

Interruption::Interruption()
    : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), former_wake_up_(wake_up.exchange(fd_)) {
  for (std::size_t i = 0; i < signals_.size(); ++i) {
    struct sigaction action {};
    action.sa_handler = note;
    action.sa_flags = SA_RESTART | SA_RESETHAND;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(signals_[i], &action, &former_[i]);
    if (former_[i].sa_handler == SIG_IGN)
      ::sigaction(signals_[i], &former_[i], nullptr);  // nohup stays nohup
  }
}

Interruption::~Interruption() {
  for (std::size_t i = 0; i < signals_.size(); ++i) ::sigaction(signals_[i], &former_[i], nullptr);
  wake_up = former_wake_up_;
  ::close(fd_);
}

void Interruption::check() const {
  if (received != 0) throw Interrupted(received);
}

}  // namespace fsdp_cts
