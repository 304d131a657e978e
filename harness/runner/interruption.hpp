// SIGINT, SIGTERM and SIGHUP while a session lives: the session stops, cleans up and throws Interrupted,
// instead of dying with its ranks running. The second signal ends the program at once; the guardian cleans up
// then.
#pragma once

#include <signal.h>

#include <array>
#include <stdexcept>
#include <string>

namespace fsdp_cts {

class Interrupted : public std::runtime_error {
 public:
  explicit Interrupted(int number)
      : std::runtime_error("interrupted by signal " + std::to_string(number)), signal(number) {}
  const int signal;  // a program exits with 128 + signal
};

class Interruption {
 public:
  Interruption();
  ~Interruption();  // puts the former handlers back
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  int fd() const { return fd_; }  // readable once a signal came
  void check() const;             // throws Interrupted then

 private:
  static constexpr std::array<int, 3> signals_ = {SIGINT, SIGTERM, SIGHUP};
  int fd_;
  int former_wake_up_;
  std::array<struct sigaction, 3> former_{};
};

}  // namespace fsdp_cts
