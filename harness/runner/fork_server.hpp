// A process of the testee that has loaded its libraries and forks where a rank is wanted (PROTOCOL.md §10). A
// rank that would load LibTorch in a fifth of a second, or PyTorch in seconds, begins in milliseconds.
//
// It only ever saves time. Where it does not come up, refuses or has died, it is `unusable`, and ranks are started
// as without it: what is wrong with the testee, they show.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "harness/protocol/channel.hpp"
#include "harness/runner/environment.hpp"
#include "harness/runner/event_loop.hpp"
#include "harness/runner/group_home.hpp"
#include "harness/runner/listener.hpp"
#include "harness/runner/process.hpp"
#include "harness/runner/testee.hpp"

namespace fsdp_cts {

class ForkServer {
 public:
  // Starts it. It has `testee`'s environment; it comes up, or does not, until `deadline()`.
  ForkServer(EventLoop& loop, const Guardian& guardian, const Testee& testee, const Deadlines& deadlines,
             GroupHome home);
  // Ends it. Ranks that it forked are the runner's own children, and stay.
  ~ForkServer();
  ForkServer(const ForkServer&) = delete;
  ForkServer& operator=(const ForkServer&) = delete;

  bool starting() const { return phase_ == Phase::starting; }
  // When on_time wants to be called at the latest.
  Clock::time_point deadline() const;
  void on_time(Clock::time_point now);

  // A rank with `variables` on top of the server's environment; `output` is a path where nothing is yet. Null:
  // unusable.
  std::unique_ptr<Process> fork(const Variables& variables, const std::filesystem::path& output);

 private:
  enum class Phase { starting, ready, unusable };
  void accept();
  void give_up();
  std::optional<pid_t> ask(const Variables& variables, const std::filesystem::path& output);

  EventLoop& loop_;
  const Guardian& guardian_;
  GroupHome home_;
  Phase phase_ = Phase::starting;
  Clock::time_point deadline_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Process> process_;
  std::optional<Channel> channel_;
};

}  // namespace fsdp_cts
