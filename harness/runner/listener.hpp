// Where ranks connect to, and the port they may meet at.
#pragma once

#include <sys/types.h>

#include <string>

namespace fsdp_cts {

// A listening socket. `path` for a Unix socket, or TCP on "host:port"; address() is what ranks connect to.
class Listener {
 public:
  // Throws ScratchError when the socket cannot be made.
  static Listener unix_socket(const std::string& path);
  static Listener tcp(const std::string& host_and_port);
  ~Listener();
  Listener(Listener&& other) noexcept;
  Listener& operator=(Listener&&) = delete;

  int fd() const { return fd_; }
  const std::string& address() const { return address_; }
  // A connection that waits, or -1.
  int accept() const;
  // The process at the other end of an accepted connection, as the kernel knows it; 0 when it is not on this
  // host (TCP).
  static pid_t peer_process(int connection);

 private:
  Listener(int fd, std::string address) : fd_(fd), address_(std::move(address)) {}
  int fd_ = -1;
  std::string address_;
};

// Keeps a TCP port of this host for a group's MASTER_PORT: bound, never listening, so that the ranks can
// listen on it (SO_REUSEADDR) and nobody else is given it.
class PortReservation {
 public:
  PortReservation();
  ~PortReservation();
  PortReservation(const PortReservation&) = delete;
  PortReservation& operator=(const PortReservation&) = delete;
  int port() const { return port_; }

 private:
  int fd_ = -1;
  int port_ = 0;
};

}  // namespace fsdp_cts
