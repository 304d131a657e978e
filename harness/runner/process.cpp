#include "harness/runner/process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

namespace fsdp_cts {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (const std::string& each : strings) result.push_back(const_cast<char*>(each.c_str()));
  result.push_back(nullptr);
  return result;
}

SpawnError exec_error(const std::string& program, int error) {
  const std::string reason = "cannot run \"" + program + "\": " + std::strerror(error);
  if (error == ENOENT || error == ENOTDIR) {
    return SpawnError("not_found", reason + ". Give the path of an existing program, or one that is in PATH");
  }
  if (error == EACCES)
    return SpawnError("not_executable", reason + ". Is it a file with execute permission?");
  return SpawnError("exec_failed", reason);
}

// Between fork and exec: system calls only.
[[noreturn]] void become(char* const* command, char* const* environment, pid_t parent, int output, int report,
                         const Guardian& guardian) {
  ::setpgid(0, 0);
  guardian.announce(::getpid());
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(0);  // it died before the line above
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  ::execvpe(command[0], command, environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(report, &error, sizeof(error));
  ::_exit(127);
}

}  // namespace

Process::Process(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                 const Guardian& guardian)
    : guardian_(guardian) {
  if (command.empty() || command[0].empty()) throw SpawnError("not_found", "the testee's command is empty");
  const std::vector<char*> argv = pointers(command);
  const std::vector<char*> envp = pointers(environment);
  const pid_t parent = ::getpid();
  int output[2] = {-1, -1};
  int report[2] = {-1, -1};
  if (::pipe2(output, O_CLOEXEC) != 0 || ::pipe2(report, O_CLOEXEC) != 0 || (pid_ = ::fork()) < 0) {
    const int error = errno;
    for (const int fd : {output[0], output[1], report[0], report[1]}) {
      if (fd >= 0) ::close(fd);
    }
    throw SpawnError("no_process", "cannot start \"" + command[0] + "\": " + std::strerror(error));
  }
  if (pid_ == 0) become(argv.data(), envp.data(), parent, output[1], report[1], guardian);
  ::close(output[1]);
  ::close(report[1]);
  int error = 0;
  ssize_t n = 0;
  // Ends at once: with exec, which closes the pipe, or with the reason why it failed.
  while ((n = ::read(report[0], &error, sizeof(error))) < 0 && errno == EINTR) {
  }
  ::close(report[0]);
  if (n != 0) {
    ::close(output[0]);
    ::waitpid(pid_, nullptr, 0);
    guardian.forget(pid_);
    throw exec_error(command[0], error);
  }
  output_ = output[0];
  try {
    watch();
  } catch (...) {
    ::close(output_);
    throw;
  }
}

Process::Process(pid_t child, int output, const Guardian& guardian)
    : guardian_(guardian), pid_(child), output_(output) {
  guardian.announce(child);
  watch();
}

// Throws SpawnError, and the process has ended.
void Process::watch() {
  ::fcntl(output_, F_SETFL, O_NONBLOCK);
  ::fcntl(output_, F_SETPIPE_SZ, 1 << 20);  // a noisy rank wakes the runner less often; refused is fine
  pidfd_ = static_cast<int>(
      ::syscall(SYS_pidfd_open, pid_, 0));  // glibc 2.36 declares pidfd_open without C linkage
  if (pidfd_ >= 0) return;
  const int error = errno;
  ::kill(-pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);  // it has only just begun to run and dies at once
  guardian_.forget(pid_);
  throw SpawnError("no_process",
                   "cannot watch process " + std::to_string(pid_) + ": " + std::strerror(error));
}

Process::~Process() {
  signal_group(SIGKILL);
  for (int attempt = 0; attempt < 500 && !group_gone(); ++attempt)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ::close(output_);
  ::close(pidfd_);
}

void Process::signal_group(int signal) const {
  if (!status_) ::kill(-pid_, signal);
}

std::optional<int> Process::reap() {
  if (status_) return status_;
  siginfo_t info{};
  // The leader stays a zombie while the rest is killed: until then its number cannot belong to anybody else.
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return std::nullopt;
  ::kill(-pid_, SIGKILL);
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  guardian_.forget(pid_);
  status_ = status;
  group_gone();
  return status_;
}

bool Process::group_gone() {
  // Once it is empty its number may be that of another group.
  if (gone_) return true;
  if (!reap()) return false;
  if (::kill(-pid_, SIGKILL) != 0) return gone_ = true;
  // Orphans were handed to this process when their parents died. Another member's parent reaps it, or its
  // death makes it an orphan.
  while (::waitpid(-pid_, nullptr, WNOHANG) > 0) {
  }
  return gone_ = ::kill(-pid_, 0) != 0;
}

}  // namespace fsdp_cts
