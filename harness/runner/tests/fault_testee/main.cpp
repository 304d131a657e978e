// A testee that is faulty on purpose: it shows what the runner and the judge do about each fault.
// No tensor library, starts at once.
//
//   fault_testee [--fault NAME] [--rank R] [--step N] [--when TEXT] [--peers-wait] [--null]
//                [--megabytes M] [--name NAME] [--version VERSION]
//
// Without a fault it is a well-behaved testee that computes nothing: it announces every step and
// answers each `observe` with the initial parameters of every model (from the data file) in FSDP2's
// dim-0 shards, and `trace` with one invented reduce_scatter. So a scenario that builds, shards and
// observes parameters passes. With --null it answers every case with `done` alone, which is what the
// latency of the runner is measured with.
//
//   --rank R       the rank that is faulty (default 1); -1: every rank
//   --step N       the step of the program at which a fault "at a step" strikes (default 1)
//   --when TEXT    faults of a case strike only where the case id contains TEXT
//   --peers-wait   at the faulty step the other ranks wait without end, as in a collective that one
//                  rank does not join
//   --megabytes M  how much `noise` writes (default 200)
//   --name NAME, --version VERSION  what hello says of the implementation
//
// Faults as a fork server:
//   server_exits server_hangs server_refuses server_names_the_runner server_names_nobody
//   server_says_nothing
// Faults before hello:
//   start_exit_0 start_exit_1 start_sigkill never_hello done_before_hello wrong_version wrong_token
//   wrong_rank one_process (rank 0's process speaks for the faulty rank, too)
// Faults before step 0:
//   dies_before_rendezvous hangs_before_rendezvous blind_instrument
//   unsupported (with --rank -1 in agreement, else alone)
//   late_unsupported, at a step; the same
// Faults at a step, of the process:
//   sigsegv sigabrt sigkill exit_0 exit_3 out_of_memory disk_full exception uncaught_exception
//   hang hang_busy hang_in_collective hang_ignoring_sigterm grandchild escaped_grandchild
//   traced_grandchild traced_exit
//   noise noise_ff noise_for_ever unwritten
// Faults at a step, of speech:
//   second_hello wrong_case done_twice step_beyond_program step_backwards observation_ahead
//   observation_of_other_rank observation_flood unknown_type missing_key long_what long_message
//   endless_message huge_number malformed_json not_utf8 oversize_frame garbage
//   half_frame_then_exit half_frame_then_sleep close_socket talk_for_ever
// Faults at a step, of the program:
//   skip_collective (with --peers-wait: goes on while the others wait)
// Faulty answers, the files:
//   missing_file truncated_file hostile_file pipe_for_file file_outside file_is_link file_behind_link
//   missing_tensor
// Faulty answers, the content:
//   wrong_value wrong_shape wrong_dtype nan missing_shard overlapping_shard empty_answer
// After done: idle_sigsegv. After bye: bye_exit_5 bye_hang bye_sigsegv
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "harness/protocol/channel.hpp"
#include "harness/protocol/fork_server.hpp"
#include "harness/runner/tests/fault_testee/answers.hpp"
#include "harness/runner/tests/fault_testee/faults.hpp"

namespace {

using fault_testee::harm_process;
using fault_testee::speak_out_of_order;
using fsdp_cts::Channel;
using fsdp_cts::Json;

struct Options {
  std::string fault;
  int faulty_rank = 1;
  int step = 1;
  std::string when;
  bool peers_wait = false;
  bool null = false;
  std::size_t megabytes = 200;
  std::string name = "fault_testee", version = "1";
};

struct Place {
  int rank = 0;
  int world = 1;
};

Json hello(const std::string& fault, const Options& options, int rank) {
  const char* token = std::getenv("FSDP_CTS_TOKEN");
  return {{"type", "hello"},
          {"protocol", fault == "wrong_version" ? 2 : 1},
          {"token", fault == "wrong_token" || token == nullptr ? "guessed" : token},
          {"rank", fault == "wrong_rank" ? rank + 1 : rank},
          {"implementation", {{"name", options.name}, {"version", options.version}}},
          {"apis", {"fully_shard", "fsdp", "composable"}},
          {"backend", "none"},
          {"device", "cpu"},
          {"reduction_order", "rank"},
          {"environment", Json::object()}};
}

// Instead of serve_forks, or before it.
void harm_fork_server(const std::string& fault) {
  const char* address = std::getenv("FSDP_CTS_FORK_SERVER");
  if (address == nullptr || !fault.starts_with("server_")) return;
  if (fault == "server_exits") ::_exit(3);
  if (fault == "server_hangs") harm_process("hang", 0);
  if (fault == "server_refuses") {
    std::thread([] { ::pause(); }).detach();
    return;
  }
  Channel channel = Channel::connect(address);
  const auto request = channel.receive();
  if (fault == "server_says_nothing") ::_exit(0);
  const pid_t nobody = 0x3FFFFF;
  channel.send({{"type", "forked"}, {"process", fault == "server_names_the_runner" ? ::getppid() : nobody}});
  while (channel.receive()) {
  }
  ::_exit(0);
}

void harm_start(const std::string& fault, Channel& channel) {
  if (fault == "start_exit_0") ::_exit(0);
  if (fault == "start_exit_1") ::_exit(1);
  if (fault == "start_sigkill") ::raise(SIGKILL);
  if (fault == "never_hello") harm_process("hang", 0);
  if (fault == "done_before_hello") channel.send({{"type", "done"}, {"case", 1}});
}

void run_case(const Json& the_case, const Options& options, const Place& place, const std::string& fault,
              Channel& channel) {
  const Json& program = the_case["program"];
  for (int step = 0; step < static_cast<int>(program.size()); ++step) {
    const std::string verb = program[static_cast<std::size_t>(step)]["verb"];
    channel.send({{"type", "progress"}, {"case", the_case["case"]}, {"step", step}, {"verb", verb}});
    const bool strikes = step == options.step;
    if (strikes && fault.empty() && options.peers_wait && place.rank != options.faulty_rank)
      fault_testee::waitRecv();
    if (strikes && fault == "late_unsupported") {
      return channel.send(
          {{"type", "unsupported"}, {"case", the_case["case"]}, {"reason", "it found out late"}});
    }
    if (strikes) {
      harm_process(fault, options.megabytes);
      speak_out_of_order(fault, channel, the_case, step, place.rank);
    }
    if (verb == "observe") channel.send(fault_testee::answer(the_case, step, place.rank, place.world, fault));
  }
  channel.send({{"type", "done"}, {"case", the_case["case"]}});
}

void take_case(const Json& the_case, const Options& options, const Place& place, Channel& channel) {
  const Json number = the_case["case"];
  if (options.null) return channel.send({{"type", "done"}, {"case", number}});
  const bool meant = the_case["id"].get<std::string>().find(options.when) != std::string::npos;
  const bool faulty = meant && (options.faulty_rank < 0 || options.faulty_rank == place.rank);
  const std::string fault = faulty ? options.fault : "";
  Options here = options;
  here.peers_wait = options.peers_wait && meant;
  if (fault == "dies_before_rendezvous") ::raise(SIGKILL);
  if (fault == "unsupported")
    return channel.send({{"type", "unsupported"}, {"case", number}, {"reason", "it is faulty on purpose"}});
  channel.send({{"type", "progress"}, {"case", number}, {"step", -1}, {"verb", "rendezvous"}});
  if (fault == "hangs_before_rendezvous") harm_process("hang", 0);
  if (fault == "blind_instrument")
    return channel.send(
        {{"type", "error"},
         {"case", number},
         {"step", -1},
         {"error", {{"type", "InstrumentBlind"}, {"message", "no gather was seen"}, {"phase", "other"}}}});
  try {
    run_case(the_case, here, place, fault, channel);
  } catch (const std::exception& e) {
    const char* type =
        dynamic_cast<const std::invalid_argument*>(&e) != nullptr ? "ValueError" : "RuntimeError";
    if (fault == "out_of_memory") throw;
    channel.send({{"type", "error"},
                  {"case", number},
                  {"step", options.step},
                  {"error", {{"type", type}, {"message", e.what()}, {"phase", "other"}}}});
  }
  if (fault == "idle_sigsegv") ::raise(SIGSEGV);
}

int after_bye(const std::string& fault) {
  if (fault == "bye_exit_5") return 5;
  if (fault == "bye_hang") harm_process("hang", 0);
  if (fault == "bye_sigsegv") ::raise(SIGSEGV);
  return 0;
}

int environment_number(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr)
    throw std::runtime_error(std::string(name) + " is not set; this program is started by the runner");
  return std::atoi(text);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("A testee that is faulty on purpose");
  app.add_option("--fault", options.fault);
  app.add_option("--rank", options.faulty_rank);
  app.add_option("--step", options.step);
  app.add_option("--when", options.when);
  app.add_flag("--peers-wait", options.peers_wait);
  app.add_flag("--null", options.null);
  app.add_option("--megabytes", options.megabytes);
  app.add_option("--name", options.name);
  app.add_option("--version", options.version);
  CLI11_PARSE(app, argc, argv);

  harm_fork_server(options.fault);
  fsdp_cts::serve_forks();
  const Place place{environment_number("RANK"), environment_number("WORLD_SIZE")};
  const bool faulty = options.faulty_rank < 0 || options.faulty_rank == place.rank;
  const std::string fault = faulty ? options.fault : "";
  const std::string socket = std::getenv("FSDP_CTS_SOCKET");
  if (fault == "one_process") harm_process("hang", 0);
  Channel channel = Channel::connect(socket);
  harm_start(fault, channel);
  channel.send(hello(fault, options, place.rank));
  std::optional<Channel> of_another;
  if (options.fault == "one_process" && place.rank == 0) {
    const auto path =
        std::filesystem::path(socket).replace_filename(std::to_string(options.faulty_rank) + ".sock");
    while (!of_another) {
      try {
        of_another = Channel::connect(path);
      } catch (const fsdp_cts::FrameError&) {
        ::usleep(1000);  // the runner starts one rank after the other
      }
    }
    of_another->send(hello("", options, options.faulty_rank));
  }
  while (const auto message = channel.receive()) {
    if ((*message)["type"] == "bye") return after_bye(fault);
    take_case(*message, options, place, channel);
  }
  return 0;
}
