#include "harness/runner/listener.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "harness/runner/scratch.hpp"

namespace fsdp_cts {
namespace {

constexpr int backlog = 64;

[[noreturn]] void fail(const std::string& where, const std::string& reason) {
  throw ScratchError("cannot listen on " + where + ": " + reason);
}

std::string bound_port(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  char port[16] = "";
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  ::getnameinfo(reinterpret_cast<sockaddr*>(&address), size, nullptr, 0, port, sizeof(port), NI_NUMERICSERV);
  return port;
}

}  // namespace

Listener Listener::unix_socket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) fail(path, "the path is too long for a Unix socket");
  std::copy(path.begin(), path.end(), address.sun_path);
  Listener listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), path);
  if (listener.fd_ < 0 ||
      ::bind(listener.fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(listener.fd_, backlog) != 0) {
    fail(path, std::strerror(errno));
  }
  return listener;
}

Listener Listener::tcp(const std::string& host_and_port) {
  const std::size_t colon = host_and_port.rfind(':');
  if (colon == std::string::npos)
    fail("\"" + host_and_port + "\"", "it must be host:port, with port 0 for any");
  const std::string host = host_and_port.substr(0, colon);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int code =
      ::getaddrinfo(host.empty() ? nullptr : host.c_str(), host_and_port.c_str() + colon + 1, &hints, &found);
  if (code != 0) fail(host_and_port, ::gai_strerror(code));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  Listener listener(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), "");
  const int on = 1;
  ::setsockopt(listener.fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  // Accepted sockets inherit it. Messages are small and answered at once; none should wait for a fuller
  // packet.
  ::setsockopt(listener.fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (listener.fd_ < 0 || ::bind(listener.fd_, found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(listener.fd_, backlog) != 0) {
    fail(host_and_port, std::strerror(errno));
  }
  listener.address_ = host + ":" + bound_port(listener.fd_);
  return listener;
}

Listener::~Listener() {
  if (fd_ >= 0) ::close(fd_);
}

Listener::Listener(Listener&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), address_(std::move(other.address_)) {}

int Listener::accept() const {
  return ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
}

pid_t Listener::peer_process(int connection) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return ::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

PortReservation::PortReservation() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const int on = 1;
  ::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  if (fd_ < 0 || ::bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    fail("a TCP port", std::strerror(errno));
  }
  port_ = std::stoi(bound_port(fd_));
}

PortReservation::~PortReservation() {
  ::close(fd_);
}

}  // namespace fsdp_cts
