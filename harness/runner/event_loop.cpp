#include "harness/runner/event_loop.hpp"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <system_error>

namespace fsdp_cts {
namespace {

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// Rounded up: waking a millisecond early would spin until the deadline.
int milliseconds_until(Clock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  return static_cast<int>(std::clamp<decltype(left)>(left, 0, std::numeric_limits<int>::max()));
}

}  // namespace

EventLoop::EventLoop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (epoll_ < 0) fail("epoll_create1");
}

EventLoop::~EventLoop() {
  ::close(epoll_);
}

void EventLoop::watch(int fd, Handler handler) {
  const std::uint64_t id = next_id_++;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = id;
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) fail("epoll_ctl add");
  watches_[fd] = {id, std::make_shared<Handler>(std::move(handler))};
  fds_[id] = fd;
}

void EventLoop::want_write(int fd, bool wanted) {
  epoll_event event{};
  event.events = wanted ? EPOLLIN | EPOLLOUT : EPOLLIN;
  event.data.u64 = watches_.at(fd).id;
  if (::epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event) != 0) fail("epoll_ctl modify");
}

void EventLoop::unwatch(int fd) {
  const auto watch = watches_.find(fd);
  if (watch == watches_.end()) return;
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
  fds_.erase(watch->second.id);
  watches_.erase(watch);
}

bool EventLoop::run_once(Clock::time_point until) {
  std::array<epoll_event, 64> events;
  const int ready =
      ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), milliseconds_until(until));
  if (ready < 0 && errno != EINTR) fail("epoll_wait");
  for (int i = 0; i < ready; ++i) {
    const auto fd = fds_.find(events[static_cast<std::size_t>(i)].data.u64);
    if (fd == fds_.end()) continue;  // an earlier handler of this batch gave it up
    const std::shared_ptr<Handler> handler =
        watches_.at(fd->second).handler;  // lives through its own unwatch
    (*handler)();
  }
  return ready > 0;
}

}  // namespace fsdp_cts
