#include "harness/runner/transport_bytes.hpp"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <system_error>

namespace fsdp_cts {
namespace {

namespace fs = std::filesystem;

class Socket {
 public:
  Socket() : fd_(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

bool ask(int fd, unsigned char family) {
  struct {
    nlmsghdr header;
    inet_diag_req_v2 request;
  } message{};
  message.header.nlmsg_len = sizeof(message);
  message.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  message.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  message.request.sdiag_family = family;
  message.request.sdiag_protocol = IPPROTO_TCP;
  message.request.idiag_ext = 1 << (INET_DIAG_INFO - 1);
  message.request.idiag_states = ~0U;
  return ::send(fd, &message, sizeof(message), 0) == static_cast<ssize_t>(sizeof(message));
}

// False where the kernel is older than the counters.
bool take(const nlmsghdr* header, SocketBytes& into) {
  const auto* socket = static_cast<const inet_diag_msg*>(NLMSG_DATA(header));
  auto left = static_cast<int>(header->nlmsg_len - NLMSG_LENGTH(sizeof(*socket)));
  const auto* start = reinterpret_cast<const char*>(socket) + NLMSG_ALIGN(sizeof(*socket));
  for (auto* each = reinterpret_cast<const rtattr*>(start); RTA_OK(each, left); each = RTA_NEXT(each, left)) {
    if (each->rta_type != INET_DIAG_INFO) continue;
    tcp_info info{};
    const std::size_t size = RTA_PAYLOAD(each);
    if (size < offsetof(tcp_info, tcpi_bytes_retrans) + sizeof(info.tcpi_bytes_retrans)) return false;
    std::memcpy(&info, RTA_DATA(each), std::min(size, sizeof(info)));
    into[socket->idiag_inode] = info.tcpi_bytes_sent - info.tcpi_bytes_retrans;
  }
  return true;
}

// All TCP sockets of this host.
bool add_sockets(unsigned char family, SocketBytes& into) {
  const Socket socket;
  if (socket.fd() < 0 || !ask(socket.fd(), family)) return false;
  alignas(nlmsghdr) char buffer[32768];
  for (;;) {
    const ssize_t received = ::recv(socket.fd(), buffer, sizeof(buffer), 0);
    if (received <= 0) return false;
    auto left = static_cast<unsigned>(received);
    for (auto* each = reinterpret_cast<const nlmsghdr*>(buffer); NLMSG_OK(each, left);
         each = NLMSG_NEXT(each, left)) {
      if (each->nlmsg_type == NLMSG_DONE) return true;
      if (each->nlmsg_type == NLMSG_ERROR || !take(each, into)) return false;
    }
  }
}

void add_with_children(pid_t process, std::set<pid_t>& into) {
  if (!into.insert(process).second) return;
  std::error_code gone;
  for (const auto& thread : fs::directory_iterator("/proc/" + std::to_string(process) + "/task", gone)) {
    std::ifstream children(thread.path() / "children");
    for (pid_t child = 0; children >> child;) add_with_children(child, into);
  }
}

std::set<std::uint64_t> sockets_of(pid_t process) {
  std::set<pid_t> processes;
  add_with_children(process, processes);
  std::set<std::uint64_t> inodes;
  for (const pid_t each : processes) {
    std::error_code gone;
    for (const auto& file : fs::directory_iterator("/proc/" + std::to_string(each) + "/fd", gone)) {
      const std::string target = fs::read_symlink(file.path(), gone).string();
      if (target.starts_with("socket:[")) inodes.insert(std::stoull(target.substr(8)));
    }
  }
  return inodes;
}

}  // namespace

std::optional<std::vector<SocketBytes>> tcp_bytes_sent(const std::vector<pid_t>& processes) {
  SocketBytes all;
  if (!add_sockets(AF_INET, all) || !add_sockets(AF_INET6, all)) return std::nullopt;
  std::vector<SocketBytes> result;
  for (const pid_t process : processes) {
    SocketBytes& own = result.emplace_back();
    for (const std::uint64_t inode : sockets_of(process)) {
      if (const auto found = all.find(inode); found != all.end()) own.insert(*found);
    }
  }
  return result;
}

std::optional<std::uint64_t> sent_between(const SocketBytes& before, const SocketBytes& after) {
  std::uint64_t sum = 0;
  for (const auto& [inode, bytes] : before) {
    if (!after.contains(inode)) return std::nullopt;
  }
  for (const auto& [inode, bytes] : after) {
    const auto earlier = before.find(inode);
    sum += bytes - (earlier == before.end() ? 0 : earlier->second);
  }
  return sum;
}

}  // namespace fsdp_cts
