// Runs cases on testees: the one entrance to this folder.
//
//   Session session(options);
//   session.run(jobs, [&](const Job& job, CaseRun&& run) { judge… });   // may be called again, ranks stay
//   warm session.close([&](const Testee& testee, CaseRun&& run) { … });      // whatever ended badly after
//   its last case
//
// Testee and oracle go through the same session: jobs of different testees run side by side. One thread does
// everything; the callback runs on it too, after the next case has been handed out. When the session is
// destroyed nothing of it is left: no process, socket or file.
#pragma once

#include <deque>
#include <filesystem>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "harness/runner/data_files.hpp"
#include "harness/runner/fork_server.hpp"
#include "harness/runner/interruption.hpp"
#include "harness/runner/rank_group.hpp"
#include "harness/runner/run.hpp"
#include "harness/runner/scratch.hpp"
#include "harness/runner/testee.hpp"
#include "harness/scenario/case.hpp"

namespace fsdp_cts {

// The time for one step after a case of the same scenario has hung: enough for every case that passed, and
// not the whole deadline again and again.
std::chrono::duration<double> short_deadline(double slowest_that_passed);

// Whether a rank was not started or never said hello, and would not the next time: it is the testee's doing,
// not that of the runner's files.
bool never_started(const CaseRun& run);

struct SessionOptions {
  Limits limits;
  int jobs = 0;  // groups of one testee at a time; 0: as many as the cores carry, at least one
  std::filesystem::path scratch_root;  // empty: see Scratch
  std::filesystem::path
      checkpoints;  // what cases save stays there; empty: in the session's folder, gone with it

  bool operator==(const SessionOptions&) const = default;
};

// One case on one testee. The case must outlive the run, the testee the session.
struct Job {
  const Testee* testee = nullptr;
  const Case* a_case = nullptr;
  Json oracle;        // {reduction_order, precision} when the testee is the oracle, else null
  std::string key{};  // by which the caller knows the answer; nothing to the session
};

class Session {
 public:
  using Completed = std::function<void(const Job& job, CaseRun&& run)>;
  using EndedBadly = std::function<void(const Testee& testee, CaseRun&& run)>;

  // Throws ScratchError. Handles SIGINT, SIGTERM and SIGHUP from here on.
  explicit Session(SessionOptions options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Calls `completed` exactly once for every job, in order of completion. Jobs of one testee are taken by
  // world size, then as given. Throws Interrupted after a signal, and what `completed` throws. `ended_badly`
  // is called for ranks that died between two cases. A testee that failed to start twice in a row with one
  // world is not tried again: its other jobs report the same. After a case that hung, the others of its
  // scenario get short_deadline for a step.
  void run(const std::vector<Job>& jobs, const Completed& completed, const EndedBadly& ended_badly = {});

  // Says bye to all ranks, or to those of one testee, and waits for them. `ended_badly` is called for those that
  // did not end with 0. Without it ranks are killed in the end.
  void close(const EndedBadly& ended_badly = {}, const Testee* only = nullptr);

  const std::filesystem::path& folder() const { return scratch_.folder(); }

 private:
  // The jobs of one testee within one call of run.
  struct Lane {
    struct Starts {
      int failed_in_a_row = 0;
      CaseRun last;
    };
    const Testee* testee = nullptr;
    ForkServer* fork_server = nullptr;  // none: each rank is a start of its own
    std::deque<const Job*> pending;
    int running = 0;  // cases
    int running_ranks = 0;
    // What is known of a scenario's cases: after one has hung, the others get less time.
    struct Pace {
      double slowest = 0;  // seconds of a case that ended well
      std::string hung;    // a case
    };
    std::map<int, Starts> starts;       // by world
    std::map<std::string, Pace> paces;  // by scenario
  };
  struct Slot {
    std::unique_ptr<RankGroup> group;
    const Job* job = nullptr;
  };
  struct Completion {
    const Job* job = nullptr;  // none: the end of a group between cases
    const Testee* testee = nullptr;
    CaseRun run;
  };

  std::vector<Lane> lanes_of(const std::vector<Job>& jobs) const;
  void start_jobs(std::vector<Lane>& lanes);
  void start_job(Lane& lane, const Job& job);
  bool may_start(const Lane& lane);
  ForkServer* fork_server_for(const Testee& testee);
  Slot& slot_for(const Lane& lane, int world);
  GroupHome home_of(const std::string& group) const;
  void dismiss_idle(const std::vector<Lane>& lanes);
  Assignment assignment_of(const Job& job, const Lane& lane);
  Json checkpoints_of(const Case& a_case) const;  // {save, load}: folders, as far as the case has them
  void wait();
  void collect();
  void note(std::vector<Lane>& lanes, const Completion& completion);

  SessionOptions options_;
  std::string name_;  // random; the tokens of all groups begin with it
  Scratch scratch_;
  Guardian guardian_;
  Interruption interruption_;
  EventLoop loop_;
  DataFiles data_;
  std::filesystem::path checkpoints_;
  // By what it is started with. One that has become unusable stays so.
  std::map<std::pair<std::vector<std::string>, Variables>, ForkServer> fork_servers_;
  std::list<Slot> slots_;
  std::vector<Completion> completions_;  // not yet reported
  long groups_ = 0;
  const int cores_ = static_cast<int>(std::thread::hardware_concurrency());  // asking reads files
  int former_subreaper_ = 0;
};

}  // namespace fsdp_cts
