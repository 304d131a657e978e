// A testee's end of the control channel: blocking frames over a Unix socket, or over TCP when ranks are
// started elsewhere.
//
//   Channel channel = Channel::connect(std::getenv("FSDP_CTS_SOCKET"));
//   channel.send({{"type", "hello"}, {"protocol", 1}, …});
//   while (std::optional<Json> message = channel.receive()) { … }   // nullopt: the runner closed the socket,
//   exit with 0
#pragma once

#include <optional>
#include <string>

#include "harness/protocol/frame.hpp"

namespace fsdp_cts {

class Channel {
 public:
  // `address` is the path of a Unix socket (anything with a '/') or `host:port`.
  // Throws FrameError "bad_address" or "connect".
  static Channel connect(const std::string& address);

  // Takes over an open socket.
  explicit Channel(int fd) : fd_(fd) {}
  ~Channel();
  Channel(Channel&& other) noexcept;
  Channel& operator=(Channel&& other) noexcept;

  // Returns when the whole frame is with the kernel. Throws FrameError ("io" when the peer is gone; SIGPIPE
  // is not raised).
  void send(const Json& message);
  // Waits for the next message; nullopt when the peer closed between two frames.
  // Throws FrameError ("truncated_frame" when the peer closed inside one).
  std::optional<Json> receive();

  int fd() const { return fd_; }

 private:
  int fd_ = -1;
  FrameDecoder decoder_;
};

}  // namespace fsdp_cts
