#include "harness/protocol/channel.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

namespace fsdp_cts {
namespace {

[[noreturn]] void fail_to_connect(const std::string& address, const std::string& reason) {
  throw FrameError("connect", "cannot connect to the control socket " + address + ": " + reason);
}

int connect_unix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    throw FrameError("bad_address", "the socket path has " + std::to_string(path.size()) +
                                        " bytes, a Unix socket holds " +
                                        std::to_string(sizeof(address.sun_path) - 1) + ": " + path);
  }
  std::copy(path.begin(), path.end(), address.sun_path);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const std::string reason = std::strerror(errno);
    if (fd >= 0) ::close(fd);
    fail_to_connect(path, reason);
  }
  return fd;
}

int connect_tcp(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) {
    throw FrameError("bad_address", "\"" + address + "\" is neither the path of a Unix socket nor host:port");
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code =
      ::getaddrinfo(address.substr(0, colon).c_str(), address.substr(colon + 1).c_str(), &hints, &found);
  if (code != 0) fail_to_connect(address, ::gai_strerror(code));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  std::string reason = "no address";
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    const int fd = ::socket(each->ai_family, each->ai_socktype | SOCK_CLOEXEC, each->ai_protocol);
    if (fd >= 0 && ::connect(fd, each->ai_addr, each->ai_addrlen) == 0) {
      // Messages are small and answered at once: waiting to fill a packet would cost 40 ms each.
      const int on = 1;
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      return fd;
    }
    reason = std::strerror(errno);
    if (fd >= 0) ::close(fd);
  }
  fail_to_connect(address, reason);
}

}  // namespace

Channel Channel::connect(const std::string& address) {
  return Channel(address.find('/') != std::string::npos ? connect_unix(address) : connect_tcp(address));
}

Channel::~Channel() {
  if (fd_ >= 0) ::close(fd_);
}

Channel::Channel(Channel&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), decoder_(std::move(other.decoder_)) {}

Channel& Channel::operator=(Channel&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(decoder_, other.decoder_);
  return *this;
}

void Channel::send(const Json& message) {
  const std::string frame = encode_frame(message);
  for (std::size_t sent = 0; sent < frame.size();) {
    const ssize_t n = ::send(fd_, frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw FrameError("io", std::string("cannot send to the runner: ") + std::strerror(errno));
    sent += static_cast<std::size_t>(n);
  }
}

std::optional<Json> Channel::receive() {
  std::array<char, 65536> bytes;
  for (;;) {
    if (std::optional<Json> message = decoder_.next()) return message;
    const ssize_t n = ::recv(fd_, bytes.data(), bytes.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != ECONNRESET) {
      throw FrameError("io", std::string("cannot receive from the runner: ") + std::strerror(errno));
    }
    if (n <= 0) {
      if (decoder_.inside_frame()) {
        throw FrameError("truncated_frame", "the peer closed the socket in the middle of a frame; " +
                                                std::to_string(decoder_.wanted()) + " bytes are missing");
      }
      return std::nullopt;
    }
    decoder_.feed({bytes.data(), static_cast<std::size_t>(n)});
  }
}

}  // namespace fsdp_cts
