// The runner's end of one control channel: non-blocking frames within the event loop.
#pragma once

#include <functional>
#include <string>

#include "harness/protocol/frame.hpp"
#include "harness/runner/event_loop.hpp"

namespace fsdp_cts {

class RankLink {
 public:
  struct Events {
    std::function<void(Json&&)> message;            // one JSON object with a type, not yet checked further
    std::function<void(const FrameError&)> broken;  // the stream is of no use any more; nothing follows
    std::function<void(bool inside_frame)> closed;  // the peer closed; nothing follows
  };

  // Takes over the socket.
  RankLink(EventLoop& loop, int fd, Events events);
  ~RankLink();
  RankLink(const RankLink&) = delete;
  RankLink& operator=(const RankLink&) = delete;

  // Never waits: what the kernel does not take now goes out from the loop. A peer that is gone is reported by
  // `closed`, not here.
  void send(const Json& message);
  // Takes what has arrived, also what came before the peer's end. Called by the loop, and before a process's
  // end is judged.
  void drain();
  // No further events, nothing is sent.
  void deactivate();

 private:
  void flush();

  EventLoop& loop_;
  int fd_;
  Events events_;
  FrameDecoder decoder_;
  std::string outbox_;
  bool live_ = true;
};

}  // namespace fsdp_cts
