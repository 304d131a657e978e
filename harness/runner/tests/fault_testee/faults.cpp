#include "harness/runner/tests/fault_testee/faults.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

namespace fault_testee {
namespace {

using namespace fsdp_cts;

// Waits as a computation does that forgot to end, but outside any collective.
[[noreturn]] void sleep_for_ever() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

[[noreturn]] void compute_for_ever() {
  for (volatile unsigned long i = 0;;) i = i + 1;
}

void send_raw(const Channel& channel, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(channel.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

void write_noise(std::size_t megabytes, char byte) {
  const std::string block(std::size_t{1} << 20, byte);
  for (std::size_t i = 0; i < megabytes; ++i) {
    for (std::size_t done = 0; done < block.size();) {
      const ssize_t n = ::write(STDOUT_FILENO, block.data() + done, block.size() - done);
      if (n <= 0) return;
      done += static_cast<std::size_t>(n);
    }
  }
}

// One number of a block that is large enough to come from the system and not from what was freed before.
void write_what_nobody_wrote() {
  constexpr std::size_t count = std::size_t{1} << 20;
  void* (*volatile allocate)(std::size_t) = std::malloc;  // so that the compiler does not know what it gives
  auto* const block = static_cast<float*>(allocate(count * sizeof(float)));
  std::fprintf(stdout, "%g\n", static_cast<double>(block[count / 2]));
  std::fflush(stdout);
  std::free(block);
}

// A child that outlives this process. With `escape` it leaves the process group too.
void leave_a_grandchild(bool escape) {
  if (::fork() != 0) return;
  if (escape) ::setsid();
  ::close(STDOUT_FILENO);
  ::close(STDERR_FILENO);
  sleep_for_ever();
}

// A process outside the group holds `traced` in its hand: until it lets go, nobody else sees the end of
// `traced`.
void trace_from_outside(pid_t traced) {
  if (::fork() != 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return;
  }
  ::setsid();
  ::close_range(STDOUT_FILENO, ~0U, 0);
  ::ptrace(PTRACE_SEIZE, traced, nullptr, nullptr);
  sleep_for_ever();
}

void leave_a_traced_grandchild() {
  const pid_t child = ::fork();
  if (child != 0) return trace_from_outside(child);
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  ::close(STDOUT_FILENO);
  ::close(STDERR_FILENO);
  sleep_for_ever();
}

void run_out_of_memory() {
  const rlimit little{std::size_t{64} << 20, std::size_t{64} << 20};
  ::setrlimit(RLIMIT_AS, &little);
  std::vector<std::string> hoard;
  for (;;) hoard.emplace_back(std::size_t{4} << 20, 'x');
}

// A full disk, as a process sees it that may not write more.
void run_out_of_disk() {
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit nothing{0, 0};
  ::setrlimit(RLIMIT_FSIZE, &nothing);
}

}  // namespace

[[gnu::noinline]] void waitRecv() {
  sleep_for_ever();
}

void harm_process(const std::string& fault, std::size_t megabytes) {
  if (fault == "sigsegv") ::raise(SIGSEGV);
  if (fault == "sigabrt") ::raise(SIGABRT);
  if (fault == "sigkill") ::raise(SIGKILL);
  if (fault == "exit_0") ::_exit(0);
  if (fault == "exit_3") ::_exit(3);
  if (fault == "out_of_memory") run_out_of_memory();
  if (fault == "disk_full") run_out_of_disk();
  if (fault == "hang") sleep_for_ever();
  if (fault == "hang_busy") compute_for_ever();
  if (fault == "hang_in_collective") waitRecv();
  if (fault == "hang_ignoring_sigterm") {
    ::signal(SIGTERM, SIG_IGN);
    sleep_for_ever();
  }
  if (fault == "exception") throw std::invalid_argument("the shard has 3 rows, 4 were expected");
  if (fault == "uncaught_exception") throw 42;  // nothing that main would catch
  if (fault == "noise") write_noise(megabytes, 'n');
  if (fault == "noise_ff") write_noise(1, '\xff');
  if (fault == "noise_for_ever") write_noise(~std::size_t{0}, 'n');
  if (fault == "unwritten") write_what_nobody_wrote();
  if (fault == "traced_grandchild") leave_a_traced_grandchild();
  if (fault == "traced_exit") {
    ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    trace_from_outside(::getpid());
    ::_exit(3);
  }
  if (fault == "grandchild") leave_a_grandchild(false);
  if (fault == "escaped_grandchild") leave_a_grandchild(true);
}

void speak_out_of_order(const std::string& fault, Channel& channel, const Json& the_case, int step,
                        int rank) {
  const Json number = the_case["case"];
  const auto next = number.get<long>() + 1;
  if (fault == "second_hello") {
    channel.send({{"type", "hello"},
                  {"protocol", 1},
                  {"token", "t"},
                  {"rank", rank},
                  {"implementation", {{"name", ""}, {"version", ""}}},
                  {"apis", Json::array()},
                  {"backend", ""},
                  {"device", ""},
                  {"reduction_order", "rank"},
                  {"environment", Json::object()}});
  }
  if (fault == "wrong_case") channel.send({{"type", "done"}, {"case", next}});
  if (fault == "done_twice") {
    channel.send({{"type", "done"}, {"case", number}});
    channel.send({{"type", "done"}, {"case", number}});
  }
  if (fault == "step_beyond_program")
    channel.send({{"type", "progress"}, {"case", number}, {"step", 1000}, {"verb", "x"}});
  if (fault == "step_backwards")
    channel.send({{"type", "progress"}, {"case", number}, {"step", step - 1}, {"verb", "x"}});
  if (fault == "observation_ahead") {
    channel.send({{"type", "observation"},
                  {"case", number},
                  {"rank", rank},
                  {"step", step + 1},
                  {"entries", Json::array()}});
  }
  if (fault == "observation_of_other_rank") {
    channel.send({{"type", "observation"},
                  {"case", number},
                  {"rank", rank + 1},
                  {"step", step},
                  {"entries", Json::array()}});
  }
  const Json finding{{"type", "finding"}, {"case", number},        {"rank", rank},
                     {"step", step},      {"code", "stream_race"}, {"text", "a race"}};
  if (fault == "finding") channel.send(finding);
  const Json use{{"type", "device_use"}, {"case", number}, {"rank", rank}, {"step", step}, {"peak_bytes", 7}};
  if (fault == "use") channel.send(use);
  if (fault == "use_ahead" || fault == "use_of_other_rank") {
    Json wrong = use;
    ++wrong[fault == "use_ahead" ? "step" : "rank"].get_ref<std::int64_t&>();
    channel.send(wrong);
  }
  if (fault == "finding_flood") {
    for (int i = 0; i < 1000; ++i) channel.send(finding);
  }
  if (fault == "finding_ahead") {
    Json ahead = finding;
    ahead["step"] = step + 1;
    channel.send(ahead);
  }
  if (fault == "finding_of_other_rank") {
    Json other = finding;
    other["rank"] = rank + 1;
    channel.send(other);
  }
  if (fault == "observation_flood") {
    for (;;)
      channel.send({{"type", "observation"},
                    {"case", number},
                    {"rank", rank},
                    {"step", step},
                    {"entries", Json::array()}});
  }
  if (fault == "unknown_type") channel.send({{"type", "greetings"}});
  if (fault == "missing_key") channel.send({{"type", "done"}});
  if (fault == "long_what") {
    channel.send({{"type", "observation"},
                  {"case", number},
                  {"rank", rank},
                  {"step", step},
                  {"entries", {{{"what", "register:" + std::string(50000, 'a')}, {"tensor", "t"}}}}});
  }
  if (fault == "long_message") throw std::invalid_argument("the dtype is wrong: " + std::string(50000, 'a'));
  if (fault == "endless_message") throw std::invalid_argument(std::string(std::size_t{1} << 20, 'a'));
  if (fault == "malformed_json") send_raw(channel, std::string_view("\x05\0\0\0{nope", 9));
  if (fault == "huge_number")
    send_raw(channel, std::string_view("\x16\0\0\0{\"type\":\"x\",\"n\":1e999}", 26));
  if (fault == "not_utf8") send_raw(channel, std::string_view("\x0c\0\0\0{\"type\":\"\xff\"}", 16));
  if (fault == "oversize_frame") send_raw(channel, std::string_view("\x01\0\0\x01", 4));
  if (fault == "garbage") send_raw(channel, "HTTP/1.1 400 Bad Request\r\n\r\n");
  if (fault == "half_frame_then_exit" || fault == "half_frame_then_sleep") {
    send_raw(channel, std::string_view("\x40\0\0\0{\"type\"", 11));
    if (fault == "half_frame_then_exit") ::_exit(0);
    ::shutdown(channel.fd(), SHUT_RDWR);
    sleep_for_ever();
  }
  if (fault == "close_socket") {
    ::shutdown(channel.fd(), SHUT_RDWR);
    sleep_for_ever();
  }
  if (fault == "talk_for_ever") {
    for (;;) channel.send({{"type", "progress"}, {"case", number}, {"step", step}, {"verb", "again"}});
  }
}

}  // namespace fault_testee
