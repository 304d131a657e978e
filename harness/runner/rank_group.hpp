// The ranks of one testee: started, given cases one after the other, watched, and ended. A state machine
// driven by the event loop; it never waits itself, so that several groups run side by side on one thread.
//
//   fresh ─run→ starting → running ⇄ idle ─close→ closing → gone
//                  any of these ─failure→ failing ─grace→ terminating → gone
//                  any of these ─deadline→ examining ─stacks→ terminating → gone
//
// A process that survives SIGKILL is waited for no longer than Deadlines::leftovers.
//
// Only a group whose ranks all ended a case with done or unsupported takes another one.
#pragma once

#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/runner/blame.hpp"
#include "harness/runner/event_loop.hpp"
#include "harness/runner/fork_server.hpp"
#include "harness/runner/group_home.hpp"
#include "harness/runner/guardian.hpp"
#include "harness/runner/listener.hpp"
#include "harness/runner/rank_link.hpp"
#include "harness/runner/run.hpp"
#include "harness/runner/stacks.hpp"
#include "harness/runner/testee.hpp"
#include "harness/runner/transport_bytes.hpp"

namespace fsdp_cts {

// A case as it goes to a group: PROTOCOL.md §4 without `case` and `scratch`, which the group adds.
struct Assignment {
  // Less than the usual patience with one step, and the case that taught it.
  struct Patience {
    Deadlines::Duration verb;
    std::string because;
  };
  std::string case_id;
  Json message;
  std::optional<Patience> patience;
  double slowness = 1;  // how many times as long as others the case and its steps may take
};

class RankGroup {
 public:
  // `testee`, `limits` and `fork_server` must outlive the group; null: ranks are started one by one.
  RankGroup(EventLoop& loop, const Guardian& guardian, const Testee& testee, int world, const Limits& limits,
            GroupHome home, ForkServer* fork_server);
  // Kills what is still there.
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  const Testee& testee() const { return testee_; }
  int world() const { return static_cast<int>(ranks_.size()); }

  bool available() const { return phase_ == Phase::fresh || phase_ == Phase::idle; }
  bool idle() const { return phase_ == Phase::idle; }
  // All its processes have ended and its folder is removed.
  bool gone() const { return phase_ == Phase::gone; }

  // Starts the ranks if there are none yet. Requires available().
  void run(Assignment assignment);
  // Says bye. A group that has to be killed or ends with anything but 0 then leaves a result.
  void close();
  // SIGTERM, and SIGKILL when that does not help.
  void terminate();

  // What came of the last assignment, once. One with an empty case_id tells of an end between two cases or
  // after bye.
  std::optional<CaseRun> take_result();

  // When on_time wants to be called at the latest.
  Clock::time_point deadline() const;
  void on_time(Clock::time_point now);

 private:
  enum class Phase { fresh, starting, running, idle, closing, failing, examining, terminating, gone };

  struct Rank {
    explicit Rank(const Limits& limits) : output(limits.output_head, limits.output_tail) {}
    std::unique_ptr<Process> process;  // none for ranks started elsewhere
    std::unique_ptr<Listener> listener;
    RankLink* link = nullptr;  // owned by links_
    pid_t speaker = 0;         // the process that speaks for it; 0 when that is not known
    OutputCapture output;
    bool greeted = false;              // it said hello
    bool settled = false;              // its report of the current assignment stands
    bool left = false;                 // its process ended where the program says so
    std::optional<bool> stream_ended;  // its socket was closed; true: inside a frame
    RankReport report;
    std::string last_collective;
    int last_observed = -1;  // step; one observation of each
    Clock::time_point last_sign;
    std::optional<Clock::time_point> failed_at;
    std::unique_ptr<StackCollector> stacks;
  };

  // Starting
  void start();
  void start_process(int rank);
  void listen_for_ranks();
  void accept(const Listener& listener, int rank);
  void begin(Assignment assignment);
  void dispatch();
  std::optional<std::vector<SocketBytes>> sent_so_far() const;

  // Messages of the ranks
  void on_message(int& who, RankLink* link, Json message);
  void on_hello(int& who, RankLink* link, const Json& hello);
  void on_case_message(Rank& rank, Json message);
  void progress(Rank& rank, const Json& message);
  void observe(Rank& rank, Json message);
  void find(const Rank& rank, const Json& message);
  void use(const Rank& rank, const Json& message);
  void check_agreement();
  std::filesystem::path case_folder() const;
  std::filesystem::path case_folder(const Rank& rank) const;

  // Ending
  void take_output(Rank& rank);
  void process_ended(Rank& rank);
  void stream_closed(Rank& rank, bool inside_frame);
  bool ends_by_the_program(const Rank& rank) const;
  void settle(Rank& rank, RankEnd end, std::string code, std::string detail);
  void fail(Rank& rank, RankEnd end, std::string code, std::string detail);
  void begin_failing();
  void examine(std::string code);
  void conclude_if_settled();
  void conclude();
  void count_sent(CaseRun& run) const;
  void settle_the_rest();
  std::vector<RankSituation> situations() const;
  Deadlines::Duration verb_patience() const;
  void leave_if_empty();
  void leave();

  EventLoop& loop_;
  const Guardian& guardian_;
  const Testee& testee_;
  const Limits& limits_;
  GroupHome home_;
  ForkServer* fork_server_;

  Phase phase_ = Phase::fresh;
  std::vector<Rank> ranks_;
  std::vector<std::unique_ptr<RankLink>> links_;
  std::unique_ptr<Listener> listener_;  // `launch: self`: one for all ranks
  std::unique_ptr<PortReservation> port_;
  std::string refusals_;  // connections that were not let in
  Json hello_;            // of rank 0
  bool hello_from_all_ = false;
  std::uint64_t oom_kills_before_ = 0;

  Assignment assignment_;
  long number_ = 0;  // of the current case
  std::string previous_case_;
  std::vector<Observation> observations_;
  std::vector<DeviceFinding> findings_;
  std::vector<DeviceUse> uses_;
  std::uintmax_t tensor_bytes_ = 0;                      // of these
  std::optional<std::vector<SocketBytes>> sent_before_;  // when the case was given
  std::string expiry_code_;                              // set while examining: which deadline it was
  Clock::time_point assigned_at_;
  Clock::time_point phase_began_;
  bool bye_said_ = false;
  bool killed_ = false;
  MarkedProcesses strays_;                          // of this group, wherever they are
  std::optional<Clock::time_point> leaving_since_;  // nobody may be left from then on
  Clock::time_point look_again_;                    // while leaving
  std::deque<CaseRun> results_;
};

}  // namespace fsdp_cts
