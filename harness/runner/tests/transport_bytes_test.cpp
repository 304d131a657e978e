// The kernel's counts of what a process has sent, asked about this very process.
#include "harness/runner/transport_bytes.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

namespace fsdp_cts {
namespace {

// Two ends of one TCP connection over loopback.
struct Connection {
  int here = -1, there = -1;
  Connection() {
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener, 1), 0);
    EXPECT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
    here = ::socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(::connect(here, reinterpret_cast<sockaddr*>(&address), size), 0);
    there = ::accept(listener, nullptr, nullptr);
    ::close(listener);
  }
  ~Connection() {
    ::close(here);
    ::close(there);
  }
  void send(std::size_t bytes) const {
    std::string data(bytes, 'x');
    ASSERT_EQ(::send(here, data.data(), data.size(), 0), static_cast<ssize_t>(bytes));
    ASSERT_EQ(::recv(there, data.data(), data.size(), MSG_WAITALL), static_cast<ssize_t>(bytes));
  }
};

SocketBytes own() {
  const auto counted = tcp_bytes_sent({::getpid()});
  EXPECT_TRUE(counted.has_value()) << "this kernel does not tell what sockets have sent";
  return counted ? counted->at(0) : SocketBytes{};
}

TEST(TransportBytes, CountsWhatIsSentOnOldAndNewConnections) {
  const Connection old;
  old.send(100);
  const SocketBytes before = own();
  old.send(5000);
  const Connection made_meanwhile;
  made_meanwhile.send(70);
  EXPECT_EQ(sent_between(before, own()), 5070U);
  EXPECT_EQ(sent_between(own(), own()), 0U);
}

TEST(TransportBytes, SaysNothingOnceACountIsLost) {
  SocketBytes before;
  {
    const Connection closed;
    closed.send(10);
    before = own();
  }
  EXPECT_EQ(sent_between(before, own()), std::nullopt);
}

}  // namespace
}  // namespace fsdp_cts
