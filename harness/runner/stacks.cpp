#include "harness/runner/stacks.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

namespace fsdp_cts {
namespace {

// Functions in which a thread waits for other ranks: c10d, Gloo, NCCL's host side, MPI, and our own backends
// by the collective's name.
constexpr std::array<std::string_view, 9> waiting_functions = {
    "waitRecv",     "waitSend",   "c10d::Work::wait", "AsyncWork::execute", "MPI_",
    "ncclGroupEnd", "all_gather", "reduce_scatter",   "all_reduce"};

constexpr std::size_t frame_width = 200;  // template names fill pages otherwise

// "reduce_scatter" for "gloo::ReduceScatter", "_reduce_scatter_base" and alike; empty for a function that is
// no collective.
std::string collective_in(const std::string& frame) {
  std::string letters;
  for (const char c : frame) {
    if (c != '_') letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  for (const char* name :
       {"reduce_scatter", "all_gather", "all_reduce", "all_to_all", "broadcast", "barrier"}) {
    std::string joined = name;
    std::erase(joined, '_');
    if (letters.find(joined) != std::string::npos) return name;
  }
  return "";
}

std::string first_line(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// The state letter of a thread: behind the name in parentheses, which may hold anything.
char thread_state(const std::string& stat) {
  const std::size_t end = stat.rfind(')');
  return end == std::string::npos || end + 2 >= stat.size() ? '?' : stat[end + 2];
}

std::vector<std::vector<std::string>> tool_commands(pid_t process) {
  const std::string pid = std::to_string(process);
  return {{"eu-stack", "-p", pid, "-n", "32"},
          {"gdb", "-p", pid, "-batch", "-nx", "-ex", "thread apply all bt 32"}};
}

std::vector<std::string> environment_of_this_process() {
  std::vector<std::string> result;
  for (char** each = environ; *each != nullptr; ++each) result.emplace_back(*each);
  return result;
}

}  // namespace

StackCollector::StackCollector(EventLoop& loop, pid_t process, const Guardian& guardian,
                               std::function<void()> on_finished)
    : loop_(loop),
      on_finished_(std::move(on_finished)),
      tool_output_(std::size_t{64} << 10, std::size_t{16} << 10) {
  std::error_code vanished;
  const std::filesystem::path tasks = "/proc/" + std::to_string(process) + "/task";
  for (auto each = std::filesystem::directory_iterator(tasks, vanished);
       each != std::filesystem::directory_iterator(); each.increment(vanished)) {
    const char state = thread_state(first_line(each->path() / "stat"));
    if (state == 'R') activity_ = Activity::busy;
    kernel_view_ += "thread " + each->path().filename().string() + " (" + first_line(each->path() / "comm") +
                    "): state " + state + ", waits in " + first_line(each->path() / "wchan") + "\n";
  }
  for (const std::vector<std::string>& command : tool_commands(process)) {
    try {
      tool_ = std::make_unique<Process>(command, environment_of_this_process(), guardian);
      break;
    } catch (const SpawnError&) {  // not installed: try the next
    }
  }
  if (!tool_) {
    kernel_view_ += "no stack tool found; install elfutils (eu-stack) to see functions\n";
    return;
  }
  loop_.watch(tool_->output(), [this] { take_output(); });
}

StackCollector::~StackCollector() {
  if (tool_) loop_.unwatch(tool_->output());
}

void StackCollector::take_output() {
  std::array<char, 65536> bytes;
  const ssize_t n = ::read(tool_->output(), bytes.data(), bytes.size());
  if (n > 0) tool_output_.append({bytes.data(), static_cast<std::size_t>(n)});
  if (n != 0) return;
  loop_.unwatch(tool_->output());
  tool_.reset();
  on_finished_();
}

Stacks StackCollector::result() const {
  Stacks stacks{"", activity_, ""};
  std::istringstream lines(tool_output_.text());
  for (std::string line; std::getline(lines, line);) {
    stacks.text += line.size() <= frame_width ? line : printable(line.substr(0, frame_width)) + "…";
    stacks.text += '\n';
    const bool waits =
        std::any_of(waiting_functions.begin(), waiting_functions.end(),
                    [&](std::string_view name) { return line.find(name) != std::string::npos; });
    if (waits) stacks.activity = Activity::in_collective;
    if (stacks.collective.empty() && line.starts_with('#')) stacks.collective = collective_in(line);
  }
  stacks.text += kernel_view_;
  if (!finished()) stacks.text += "[the stack tool was stopped: it took too long]\n";
  return stacks;
}

}  // namespace fsdp_cts
