#include "harness/protocol/channel.hpp"

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <thread>

namespace fsdp_cts {
namespace {

std::array<int, 2> socket_pair() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  return ends;
}

template <typename Action>
std::string frame_error_of(Action action) {
  try {
    action();
    return "accepted";
  } catch (const FrameError& e) {
    return e.code;
  }
}

TEST(Channel, CarriesMessagesBothWays) {
  const auto ends = socket_pair();
  Channel left(ends[0]);
  Channel right(ends[1]);
  left.send({{"type", "one"}});
  left.send({{"type", "two"}});
  EXPECT_EQ(right.receive(), Json({{"type", "one"}}));
  EXPECT_EQ(right.receive(), Json({{"type", "two"}}));
  right.send({{"type", "three"}});
  EXPECT_EQ(left.receive(), Json({{"type", "three"}}));
}

TEST(Channel, CarriesMoreThanTheKernelBuffers) {
  const auto ends = socket_pair();
  Channel left(ends[0]);
  Channel right(ends[1]);
  const Json large = {{"type", "large"}, {"text", std::string(4 << 20, 'x')}};
  std::thread sender([&] { left.send(large); });
  EXPECT_EQ(right.receive(), large);
  sender.join();
}

TEST(Channel, TellsTheEndFromACutFrame) {
  const auto ends = socket_pair();
  Channel right(ends[1]);
  ::close(ends[0]);
  EXPECT_EQ(right.receive(), std::nullopt);

  const auto others = socket_pair();
  Channel cut(others[1]);
  ASSERT_EQ(::write(others[0], "\x0e\0\0\0{", 5), 5);
  ::close(others[0]);
  EXPECT_EQ(frame_error_of([&] { cut.receive(); }), "truncated_frame");
}

TEST(Channel, SaysThatThePeerIsGoneInsteadOfDying) {
  const auto ends = socket_pair();
  Channel left(ends[0]);
  ::close(ends[1]);
  EXPECT_EQ(frame_error_of([&] { left.send({{"type", "done"}}); }), "io");
}

TEST(Channel, ConnectsOverTcp) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string port = std::to_string(ntohs(address.sin_port));

  Channel testee = Channel::connect("127.0.0.1:" + port);
  Channel runner(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  testee.send({{"type", "hello"}});
  EXPECT_EQ(runner.receive(), Json({{"type", "hello"}}));
  ::close(listener);
  EXPECT_EQ(frame_error_of([&] { Channel::connect("127.0.0.1:" + port); }), "connect");
}

TEST(Channel, NamesWhatIsWrongWithAnAddress) {
  EXPECT_EQ(frame_error_of([] { Channel::connect("nowhere"); }), "bad_address");
  EXPECT_EQ(frame_error_of([] { Channel::connect("/" + std::string(200, 'x')); }), "bad_address");
  EXPECT_EQ(frame_error_of([] { Channel::connect("/no/such/socket"); }), "connect");
}

}  // namespace
}  // namespace fsdp_cts
