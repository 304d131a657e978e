// Where the threads of a hung rank stand. eu-stack (elfutils) takes 0.1 s for a process with LibTorch, gdb 7
// s: the first one that is installed is used, and what the kernel tells is there in any case.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/runner/event_loop.hpp"
#include "harness/runner/guardian.hpp"
#include "harness/runner/output_capture.hpp"
#include "harness/runner/process.hpp"

namespace fsdp_cts {

// What a rank seems to do, from its stacks.
enum class Activity { unknown, in_collective, busy, asleep };

struct Stacks {
  std::string text;
  Activity activity = Activity::unknown;
  std::string collective;  // which one it is in: "all_gather", …; empty when no function's name tells
};

// Looks at one process while the loop goes on.
class StackCollector {
 public:
  // `on_finished` is called from the loop, not from here.
  StackCollector(EventLoop& loop, pid_t process, const Guardian& guardian, std::function<void()> on_finished);
  ~StackCollector();
  StackCollector(const StackCollector&) = delete;
  StackCollector& operator=(const StackCollector&) = delete;

  bool finished() const { return tool_ == nullptr; }
  // What there is so far; call it when finished, or when patience is over.
  Stacks result() const;

 private:
  void take_output();

  EventLoop& loop_;
  std::function<void()> on_finished_;
  std::string kernel_view_;
  Activity activity_ = Activity::asleep;
  OutputCapture tool_output_;
  std::unique_ptr<Process> tool_;
};

}  // namespace fsdp_cts
