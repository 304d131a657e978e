#include "harness/runner/rank_link.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace fsdp_cts {

RankLink::RankLink(EventLoop& loop, int fd, Events events)
    : loop_(loop), fd_(fd), events_(std::move(events)) {
  ::fcntl(fd_, F_SETFL, O_NONBLOCK);
  loop_.watch(fd_, [this] {
    flush();
    drain();
  });
}

RankLink::~RankLink() {
  deactivate();
  ::close(fd_);
}

void RankLink::deactivate() {
  live_ = false;
  loop_.unwatch(fd_);
}

void RankLink::send(const Json& message) {
  if (!live_) return;
  const bool idle = outbox_.empty();
  outbox_ += encode_frame(message);
  if (idle) flush();
}

void RankLink::flush() {
  if (!live_ || outbox_.empty()) return;
  const ssize_t n = ::send(fd_, outbox_.data(), outbox_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n > 0) outbox_.erase(0, static_cast<std::size_t>(n));
  // Reading will tell that the peer is gone, after what it said before.
  if (n < 0 && errno != EAGAIN && errno != EINTR) outbox_.clear();
  loop_.want_write(fd_, !outbox_.empty());
}

void RankLink::drain() {
  // Bounded, so that a rank that sends without end does not delay the others.
  constexpr std::size_t max_bytes = std::size_t{8} << 20;
  std::array<char, 65536> bytes;
  for (std::size_t taken = 0; live_ && taken < max_bytes;) {
    const ssize_t n = ::recv(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) {  // a reset connection is an end like any other
      deactivate();
      events_.closed(decoder_.inside_frame());
      return;
    }
    taken += static_cast<std::size_t>(n);
    try {
      decoder_.feed({bytes.data(), static_cast<std::size_t>(n)});
      while (live_) {
        std::optional<Json> message = decoder_.next();
        if (!message) break;
        events_.message(std::move(*message));
      }
    } catch (const FrameError& e) {
      deactivate();
      events_.broken(e);
    }
  }
}

}  // namespace fsdp_cts
