#include "harness/runner/fork_server.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <string>
#include <utility>

#include "harness/runner/scratch.hpp"

namespace fsdp_cts {
namespace {

// It waits for requests and does nothing else: only a machine that hangs takes so long.
constexpr timeval patience_with_an_answer{10, 0};

// What it says is a claim: only a child of ours that leads a process group of its own is a rank.
bool leads_a_group_of_ours(pid_t process) {
  siginfo_t info{};
  return process > 0 &&
         ::waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         ::getpgid(process) == process;
}

}  // namespace

ForkServer::ForkServer(EventLoop& loop, const Guardian& guardian, const Testee& testee,
                       const Deadlines& deadlines, GroupHome home)
    : loop_(loop),
      guardian_(guardian),
      home_(std::move(home)),
      deadline_(Clock::now() + clock_duration(deadlines.start)) {
  try {
    listener_ = std::make_unique<Listener>(Listener::unix_socket(home_.folder / "fork_server.sock"));
    Variables variables = testee_variables(testee);
    variables["FSDP_CTS_FORK_SERVER"] = listener_->address();
    // Its ranks write theirs over it.
    variables["FSDP_CTS_TOKEN"] = home_.token + std::string(32, '0');
    process_ = std::make_unique<Process>(testee.command, environment_with(variables), guardian_);
  } catch (const std::runtime_error&) {  // SpawnError, ScratchError
    give_up();
    return;
  }
  loop_.watch(listener_->fd(), [this] { accept(); });
  loop_.watch(process_->end(), [this] { give_up(); });
  // What it says while it loads its libraries belongs to no case.
  loop_.watch(process_->output(), [this] {
    std::array<char, 4096> unread;
    if (::read(process_->output(), unread.data(), unread.size()) == 0) loop_.unwatch(process_->output());
  });
}

ForkServer::~ForkServer() {
  give_up();
  MarkedProcesses(home_.mark).end();
  std::error_code ignored;
  std::filesystem::remove_all(home_.folder, ignored);
}

Clock::time_point ForkServer::deadline() const {
  return starting() ? deadline_ : Clock::time_point::max();
}

void ForkServer::on_time(Clock::time_point now) {
  if (now >= deadline()) give_up();
}

void ForkServer::accept() {
  const int fd = listener_->accept();
  if (fd < 0) return give_up();
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience_with_an_answer, sizeof(patience_with_an_answer));
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience_with_an_answer, sizeof(patience_with_an_answer));
  channel_.emplace(fd);
  loop_.unwatch(listener_->fd());
  listener_.reset();
  phase_ = Phase::ready;
}

void ForkServer::give_up() {
  phase_ = Phase::unusable;
  channel_.reset();
  if (listener_) loop_.unwatch(listener_->fd());
  listener_.reset();
  if (process_) {
    loop_.unwatch(process_->end());
    loop_.unwatch(process_->output());
  }
  process_.reset();
}

std::unique_ptr<Process> ForkServer::fork(const Variables& variables, const std::filesystem::path& output) {
  if (phase_ != Phase::ready) return nullptr;
  const int reader = ::mkfifo(output.c_str(), S_IRUSR | S_IWUSR) == 0
                         ? ::open(output.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)
                         : -1;
  const std::optional<pid_t> rank = reader >= 0 ? ask(variables, output) : std::nullopt;
  ::unlink(output.c_str());
  try {
    if (rank) return std::make_unique<Process>(*rank, reader, guardian_);
  } catch (const SpawnError&) {
  }
  if (reader >= 0) ::close(reader);
  give_up();
  return nullptr;
}

std::optional<pid_t> ForkServer::ask(const Variables& variables, const std::filesystem::path& output) {
  try {
    channel_->send(
        {{"type", "fork"}, {"environment", variables}, {"output", output.string()}, {"runner", ::getpid()}});
    const std::optional<Json> answer = channel_->receive();
    if (!answer || answer->at("type") != "forked") return std::nullopt;
    const auto process = answer->at("process").get<pid_t>();
    return leads_a_group_of_ours(process) ? std::optional(process) : std::nullopt;
  } catch (const FrameError&) {
  } catch (const Json::exception&) {
  }
  return std::nullopt;
}

}  // namespace fsdp_cts
