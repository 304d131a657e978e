// The program that runs the cases, and how long the runner waits for it.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fsdp_cts {

// What is needed to start ranks by hand, with torchrun or through a batch system (`launch: self`).
struct Invitation {
  std::string address;  // value of FSDP_CTS_SOCKET: host:port
  std::string token;    // value of FSDP_CTS_TOKEN
  std::filesystem::path
      rendezvous;  // value of FSDP_CTS_RENDEZVOUS, on a file system that all ranks and the runner share
  int world = 0;
};

struct SelfLaunch {
  std::string listen = "127.0.0.1:0";             // where the runner listens; port 0 lets the system choose
  std::string token;                              // empty: a fresh random one for every group
  std::function<void(const Invitation&)> invite;  // called for every group, when the runner listens
};

struct Testee {
  std::string name;                  // for messages
  std::vector<std::string> command;  // program (looked up in PATH) and arguments; not used with `self`
  std::map<std::string, std::string> environment;  // on top of the runner's own
  // On top of that, and of its ranks alone: testees that differ in nothing else share a fork server.
  std::map<std::string, std::string> rank_environment;
  bool oracle = false;             // one process that answers for all ranks (PROTOCOL.md §6)
  bool forks = false;              // its command can be a fork server (PROTOCOL.md §10)
  std::optional<SelfLaunch> self;  // ranks are started elsewhere and connect over TCP
};

// How long the runner waits, and for what. Every wait in the runner has its end here.
struct Deadlines {
  using Duration = std::chrono::duration<double>;
  Duration start{60};       // from the start of the processes to the last hello
  Duration rendezvous{60};  // from the case message to the first step: the ranks make their process group
  Duration verb{30};        // one step
  Duration total{180};      // one case
  Duration grace{0.25};     // after the first failure: the other ranks may still report their own
  Duration stacks{1.0};     // collecting stacks after a deadline
  Duration terminate{0.3};  // from SIGTERM to SIGKILL
  Duration leftovers{2};    // from the end of the ranks, or SIGKILL, how long what still lives is waited for
  Duration bye{
      30};  // from bye to the last exit; a Python that imported torch takes seconds on a loaded machine

  bool operator==(const Deadlines&) const = default;
};

struct Limits {
  Deadlines deadlines;
  std::size_t output_head = std::size_t{16}
                            << 10;  // bytes of stdout and stderr kept of each rank and case: the first …
  std::size_t output_tail = std::size_t{48} << 10;   // … and the last
  std::uintmax_t tensors = std::uintmax_t{4} << 30;  // bytes that the files of one case may hold together

  bool operator==(const Limits&) const = default;
};

}  // namespace fsdp_cts
