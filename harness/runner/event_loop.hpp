// One thread waits for everything: sockets, output pipes, ends of processes. Handlers run on the thread that
// calls run_once.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

namespace fsdp_cts {

using Clock = std::chrono::steady_clock;

inline Clock::duration clock_duration(std::chrono::duration<double> duration) {
  return std::chrono::duration_cast<Clock::duration>(duration);
}

class EventLoop {
 public:
  using Handler = std::function<void()>;

  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Calls `handler` as long as `fd` can be read (or has ended). A handler may watch and unwatch, itself too.
  void watch(int fd, Handler handler);
  // From now on also when `fd` can be written, or no longer so.
  void want_write(int fd, bool wanted);
  // Before closing `fd`; one that is not watched is fine.
  void unwatch(int fd);

  // Waits until something is ready or `until` has come, runs the handlers of what is ready. False: nothing
  // was ready.
  bool run_once(Clock::time_point until);

  std::size_t watched() const { return watches_.size(); }

 private:
  // A number of its own for every watch: a descriptor closed and opened again within one batch of events is
  // not confused.
  struct Watch {
    std::uint64_t id;
    std::shared_ptr<Handler> handler;
  };
  int epoll_ = -1;
  std::uint64_t next_id_ = 1;
  std::map<int, Watch> watches_;
  std::map<std::uint64_t, int> fds_;
};

}  // namespace fsdp_cts
