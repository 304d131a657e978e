#include "harness/runner/guardian.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <fstream>
#include <iterator>
#include <set>
#include <system_error>
#include <thread>

namespace fsdp_cts {
namespace {

struct Record {
  char what;  // '+' announces a process group, '-' forgets it
  pid_t process_group;
};

// A socket, because writing to a pipe whose reader has died would end this process (SIGPIPE).
void send_record(int socket, char what, pid_t process_group) noexcept {
  Record record{};
  record.what = what;
  record.process_group = process_group;
  while (::send(socket, &record, sizeof(record), MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

bool carries(const std::filesystem::path& process, const std::string& mark) {
  std::ifstream file(process / "environ", std::ios::binary);
  const std::string environment{std::istreambuf_iterator<char>(file), {}};
  return environment.starts_with(mark) || environment.find('\0' + mark) != std::string::npos;
}

// Names of /proc are read one by one: a process may vanish at any moment, which is no error here.
std::set<pid_t> marked_processes(const std::string& mark) {
  std::set<pid_t> found;
  std::error_code vanished;
  for (auto each = std::filesystem::directory_iterator("/proc", vanished);
       each != std::filesystem::directory_iterator(); each.increment(vanished)) {
    const std::string name = each->path().filename();
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || end != name.data() + name.size() || pid == ::getpid()) continue;
    if (carries(each->path(), mark)) found.insert(pid);
  }
  return found;
}

[[noreturn]] void guard(int socket, const std::filesystem::path& folder, const std::string& mark) {
  std::set<pid_t> groups;
  for (;;) {
    Record record{};
    const ssize_t n = ::read(socket, &record, sizeof(record));
    if (n < 0 && errno == EINTR) continue;
    if (n != sizeof(record)) break;
    if (record.what == '+') groups.insert(record.process_group);
    if (record.what == '-') groups.erase(record.process_group);
  }
  for (const pid_t group : groups) ::kill(-group, SIGKILL);
  // After a runner that ended in order nobody is left and the folder is gone.
  std::error_code ignored;
  if (std::filesystem::exists(folder, ignored)) {
    MarkedProcesses(mark).end();
    std::filesystem::remove_all(folder, ignored);
  }
  ::_exit(0);
}

}  // namespace

bool MarkedProcesses::gone() {
  for (const pid_t pid : marked_processes(mark_)) {
    ::kill(pid, SIGKILL);
    dying_.insert(pid);
  }
  // Orphans were handed to this process; others are gone when their own parent has reaped them.
  std::erase_if(dying_,
                [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) == pid || ::kill(pid, 0) != 0; });
  return dying_.empty();
}

void MarkedProcesses::end() {
  for (int attempt = 0; attempt < 500 && !gone(); ++attempt)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

Guardian::Guardian(const std::filesystem::path& folder, const std::string& mark) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw std::system_error(errno, std::generic_category(), "socket of the guardian");
  process_ = ::fork();
  if (process_ < 0) throw std::system_error(errno, std::generic_category(), "fork of the guardian");
  if (process_ == 0) {
    ::setpgid(0, 0);  // the terminal's Ctrl-C is not for it
    sigset_t all;
    ::sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    ::prctl(PR_SET_NAME, "cts-guardian");
    // Nothing of the runner's stays open here: a reader of its output must see the end of it.
    const int socket = ::dup2(ends[0], 0);
    ::close_range(1, ~0U, 0);
    guard(socket, folder, mark);
  }
  ::close(ends[0]);
  socket_ = ends[1];
}

Guardian::~Guardian() {
  ::close(socket_);
  ::waitpid(process_, nullptr, 0);
}

void Guardian::announce(pid_t process_group) const noexcept {
  send_record(socket_, '+', process_group);
}

void Guardian::forget(pid_t process_group) const noexcept {
  send_record(socket_, '-', process_group);
}

}  // namespace fsdp_cts
