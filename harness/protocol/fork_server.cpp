#include "harness/protocol/fork_server.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>

#include "harness/protocol/channel.hpp"

namespace fsdp_cts {
namespace {

constexpr const char* address_variable = "FSDP_CTS_FORK_SERVER";

// A child would have one thread only, and the locks of the others.
void expect_one_thread() {
  namespace fs = std::filesystem;
  const auto threads = std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator());
  if (threads != 1)
    throw std::runtime_error("a process of " + std::to_string(threads) + " threads cannot be forked safely");
}

bool read_whole(int fd, void* data, std::size_t size) {
  ssize_t n = 0;
  while ((n = ::read(fd, data, size)) < 0 && errno == EINTR) {
  }
  return n == static_cast<ssize_t>(size);
}

void open_output(const std::string& path) {
  const int output = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (output < 0) {
    std::cerr << "fork server: " << path << ": " << std::strerror(errno) << '\n';
    ::_exit(1);
  }
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::close(output);
}

// Stray processes of a group are found by its token in /proc, which shows the environment as it was when the program
// began: that is written over. The server's token is longer than any rank's.
void show_token(const std::string& token) {
  char* shown = std::getenv("FSDP_CTS_TOKEN");
  if (shown == nullptr || std::strlen(shown) < token.size()) return;
  std::memset(shown, 0, std::strlen(shown));
  token.copy(shown, token.size());
}

// Read before the fork: a process that was forked must not throw, or it would go on as a second server.
struct Request {
  explicit Request(const Json& message)
      : environment(message.at("environment").get<std::map<std::string, std::string>>()),
        token(environment.at("FSDP_CTS_TOKEN")),
        output(message.at("output").get<std::string>()),
        runner(message.at("runner").get<pid_t>()) {}

  std::map<std::string, std::string> environment;
  std::string token, output;
  pid_t runner;
};

// In the forked process. Says who it is once it has a process group of its own, and goes on when the process
// between it and the server is gone: the runner is its parent then.
void become_rank(const Request& request, int report, int go) {
  ::setpgid(0, 0);
  open_output(request.output);
  const pid_t self = ::getpid();
  char may_go = 0;
  if (::write(report, &self, sizeof(self)) != sizeof(self) || !read_whole(go, &may_go, 1)) ::_exit(1);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != request.runner) ::_exit(1);  // it died before the line above
  ::close(report);
  ::close(go);
  show_token(request.token);
  ::unsetenv(address_variable);
  for (const auto& [name, value] : request.environment) ::setenv(name.c_str(), value.c_str(), 1);
}

// The process, or 0 in it.
pid_t fork_rank(const Request& request) {
  expect_one_thread();
  int report[2], go[2];
  if (::pipe2(report, O_CLOEXEC) != 0 || ::pipe2(go, O_CLOEXEC) != 0)
    throw std::runtime_error(std::string("no pipe: ") + std::strerror(errno));
  std::cout.flush();
  const pid_t between = ::fork();
  if (between == 0) {
    ::close(report[0]);
    ::close(go[1]);
    if (const pid_t rank = ::fork(); rank != 0) ::_exit(rank < 0 ? 1 : 0);
    become_rank(request, report[1], go[0]);
    return 0;
  }
  ::close(report[1]);
  ::close(go[0]);
  pid_t rank = 0;
  const bool born = between > 0 && read_whole(report[0], &rank, sizeof(rank));
  if (between > 0) ::waitpid(between, nullptr, 0);
  if (born && ::write(go[1], "", 1) != 1) rank = 0;
  ::close(report[0]);
  ::close(go[1]);
  if (!born || rank == 0) throw std::runtime_error("a rank could not be forked");
  return rank;
}

}  // namespace

void serve_forks() {
  const char* address = std::getenv(address_variable);
  if (address == nullptr) return;
  try {
    Channel channel = Channel::connect(address);
    while (const std::optional<Json> request = channel.receive()) {
      Json answer;
      try {
        const pid_t rank = fork_rank(Request(*request));
        if (rank == 0) return;
        answer = {{"type", "forked"}, {"process", rank}};
      } catch (const std::exception& reason) {
        answer = {{"type", "not_forked"}, {"reason", reason.what()}};
      }
      channel.send(answer);
    }
  } catch (const FrameError& lost) {
    std::cerr << "fork server: " << lost.what() << '\n';
    ::_exit(1);
  }
  ::_exit(0);
}

}  // namespace fsdp_cts
