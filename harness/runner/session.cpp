#include "harness/runner/session.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <random>
#include <system_error>
#include <utility>

#include "harness/runner/checkpoints.hpp"

namespace fsdp_cts {
namespace {

constexpr int start_attempts = 2;

// Handles what has arrived already; bounded, so that a talkative rank cannot put a deadline off indefinitely.
void process_ready_events(EventLoop& loop) {
  constexpr int max_rounds = 8;
  for (int round = 0; round < max_rounds && loop.run_once(Clock::now()); ++round) {
  }
}

std::string random_word() {
  std::random_device device;
  char text[17];
  std::snprintf(text, sizeof(text), "%08x%08x", device(), device());
  return text;
}

int world_of(const Job& job) {
  return job.testee->oracle ? 1 : job.a_case->world;
}

// A report about a case that never reached its ranks.
CaseRun not_run(const Job& job, const std::string& code, const std::string& detail) {
  CaseRun run;
  run.case_id = job.a_case->id;
  for (int number = 0; number < world_of(job); ++number) {
    RankReport report;
    report.rank = number;
    report.end = RankEnd::not_started;
    report.detail_code = code;
    report.detail = detail;
    run.ranks.push_back(std::move(report));
  }
  run.blame = "the case did not reach its ranks: " + detail;
  return run;
}

// A graph compiler works for a minute on what a CPU computes in a millisecond.
double slowness(const Case& a_case) {
  return needs(a_case, "compiler") ? 10 : 1;
}

bool ended_in(const CaseRun& run, RankEnd end) {
  return std::any_of(run.ranks.begin(), run.ranks.end(),
                     [&](const RankReport& rank) { return rank.end == end; });
}

}  // namespace

bool never_started(const CaseRun& run) {
  constexpr std::array troubles_of_the_runner = {"scratch", "data", "no_descriptor"};
  return std::any_of(run.ranks.begin(), run.ranks.end(), [&](const RankReport& rank) {
    if (rank.end == RankEnd::protocol_error)
      return rank.detail_code == "no_hello" || rank.detail_code == "wrong_version" ||
             rank.detail_code == "wrong_token";
    return rank.end == RankEnd::not_started &&
           std::find(troubles_of_the_runner.begin(), troubles_of_the_runner.end(), rank.detail_code) ==
               troubles_of_the_runner.end();
  });
}

std::chrono::duration<double> short_deadline(double slowest_that_passed) {
  return std::chrono::duration<double>(std::max(5.0, 5 * slowest_that_passed));
}

Session::Session(SessionOptions options)
    : options_(std::move(options)),
      name_(random_word()),
      scratch_(options_.scratch_root),
      guardian_(scratch_.folder(), "FSDP_CTS_TOKEN=" + name_ + "-"),
      data_(scratch_.folder() / "data"),
      checkpoints_(options_.checkpoints.empty() ? scratch_.folder() / "checkpoints"
                                                : std::filesystem::absolute(options_.checkpoints)) {
  // Orphans of ranks come to this process instead of init, and can be reaped.
  ::prctl(PR_GET_CHILD_SUBREAPER, &former_subreaper_);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  make_folder(scratch_.folder() / "data");
  loop_.watch(interruption_.fd(), [] {});  // only wakes the loop; run and close look at it
}

Session::~Session() {
  slots_.clear();
  fork_servers_.clear();
  ::prctl(PR_SET_CHILD_SUBREAPER, former_subreaper_);
}

void Session::run(const std::vector<Job>& jobs, const Completed& completed, const EndedBadly& ended_badly) {
  std::vector<Lane> lanes = lanes_of(jobs);
  for (Lane& lane : lanes) lane.fork_server = fork_server_for(*lane.testee);
  process_ready_events(loop_);  // ranks that have died since the last run get no case
  try {
    for (std::size_t left = jobs.size(); left > 0;) {
      interruption_.check();
      start_jobs(lanes);
      collect();  // a group that cannot start reports at once
      if (completions_.empty()) {
        wait();
        collect();
      }
      std::vector<Completion> completions = std::exchange(completions_, {});
      for (const Completion& each : completions) note(lanes, each);
      start_jobs(lanes);  // ranks work while the callback judges
      for (Completion& each : completions) {
        if (each.job != nullptr) {
          --left;
          completed(*each.job, std::move(each.run));
        } else if (ended_badly) {
          ended_badly(*each.testee, std::move(each.run));
        }
      }
    }
  } catch (...) {
    completions_.clear();
    for (Slot& slot : slots_) {
      if (std::exchange(slot.job, nullptr) != nullptr) slot.group->terminate();
    }
    throw;
  }
}

void Session::close(const EndedBadly& ended_badly, const Testee* only) {
  const auto meant = [&](const Slot& slot) { return only == nullptr || only == &slot.group->testee(); };
  for (Slot& slot : slots_) {
    if (meant(slot)) slot.group->close();
  }
  for (;;) {
    interruption_.check();
    collect();
    for (Completion& each : std::exchange(completions_, {})) {
      if (ended_badly) ended_badly(*each.testee, std::move(each.run));
    }
    if (std::none_of(slots_.begin(), slots_.end(), meant)) return;
    wait();
  }
}

std::vector<Session::Lane> Session::lanes_of(const std::vector<Job>& jobs) const {
  std::vector<Lane> lanes;
  for (const Job& job : jobs) {
    auto lane =
        std::find_if(lanes.begin(), lanes.end(), [&](const Lane& each) { return each.testee == job.testee; });
    if (lane == lanes.end()) {
      lane = lanes.emplace(lanes.end());
      lane->testee = job.testee;
    }
    lane->pending.push_back(&job);
  }
  // Ranks of one world serve all its cases before others are started.
  for (Lane& lane : lanes) {
    std::stable_sort(lane.pending.begin(), lane.pending.end(),
                     [](const Job* a, const Job* b) { return world_of(*a) < world_of(*b); });
  }
  return lanes;
}

void Session::start_jobs(std::vector<Lane>& lanes) {
  for (Lane& lane : lanes) {
    while (!lane.pending.empty() && may_start(lane)) {
      const Job& job = *lane.pending.front();
      lane.pending.pop_front();
      start_job(lane, job);
    }
  }
  dismiss_idle(lanes);
}

void Session::start_job(Lane& lane, const Job& job) {
  const int world = world_of(job);
  ++lane.running;
  lane.running_ranks += world;
  if (const Lane::Starts& starts = lane.starts[world]; starts.failed_in_a_row >= start_attempts) {
    CaseRun run = starts.last;
    run.case_id = job.a_case->id;
    run.blame += "; not tried again after " + std::to_string(start_attempts) + " failed starts";
    completions_.push_back({&job, job.testee, std::move(run)});
    return;
  }
  try {
    Assignment assignment = assignment_of(job, lane);
    Slot& slot = slot_for(lane, world);
    slot.group->run(std::move(assignment));
    slot.job = &job;
  } catch (const std::system_error& e) {  // a full disk fails this case, not the others
    completions_.push_back({&job, job.testee, not_run(job, "scratch", e.what())});
  } catch (const ScratchError& e) {
    completions_.push_back({&job, job.testee, not_run(job, "scratch", e.what())});
  } catch (const std::exception& e) {
    completions_.push_back({&job, job.testee, not_run(job, "data", e.what())});
  }
}

bool Session::may_start(const Lane& lane) {
  if (lane.fork_server && lane.fork_server->starting()) return false;
  if (lane.running == 0) return true;
  if (options_.jobs > 0) return lane.running < options_.jobs;
  return lane.running_ranks + world_of(*lane.pending.front()) <= cores_;
}

Session::Slot& Session::slot_for(const Lane& lane, int world) {
  const Testee& testee = *lane.testee;
  for (Slot& slot : slots_) {
    if (slot.group->idle() && &slot.group->testee() == &testee && slot.group->world() == world) return slot;
  }
  GroupHome home = home_of("g" + std::to_string(++groups_));
  if (testee.self && !testee.self->token.empty()) home.token = testee.self->token;
  slots_.push_back({std::make_unique<RankGroup>(loop_, guardian_, testee, world, options_.limits,
                                                std::move(home), lane.fork_server),
                    nullptr});
  return slots_.back();
}

GroupHome Session::home_of(const std::string& group) const {
  const std::string prefix = name_ + "-" + group + "-";
  GroupHome home{scratch_.folder() / group, prefix + random_word(), "FSDP_CTS_TOKEN=" + prefix};
  make_folder(home.folder);
  return home;
}

// The one that testees of the same program share, started if there is none yet; null for those that cannot have one.
ForkServer* Session::fork_server_for(const Testee& testee) {
  if (!testee.forks || testee.self) return nullptr;
  auto program = std::pair(testee.command, testee_variables(testee));
  if (const auto found = fork_servers_.find(program); found != fork_servers_.end()) return &found->second;
  try {
    GroupHome home = home_of("f" + std::to_string(fork_servers_.size() + 1));
    return &fork_servers_
                .try_emplace(std::move(program), loop_, guardian_, testee, options_.limits.deadlines,
                             std::move(home))
                .first->second;
  } catch (const ScratchError&) {  // the ranks will say so
    return nullptr;
  }
}

void Session::dismiss_idle(const std::vector<Lane>& lanes) {
  for (const Lane& lane : lanes) {
    if (lane.pending.empty()) continue;  // warm ranks may serve the next run
    for (Slot& slot : slots_) {
      if (!slot.group->idle() || &slot.group->testee() != lane.testee) continue;
      const bool wanted = std::any_of(lane.pending.begin(), lane.pending.end(),
                                      [&](const Job* job) { return world_of(*job) == slot.group->world(); });
      if (!wanted) slot.group->close();
    }
  }
}

Assignment Session::assignment_of(const Job& job, const Lane& lane) {
  Assignment assignment{job.a_case->id, case_message(*job.a_case), {}, slowness(*job.a_case)};
  if (const auto pace = lane.paces.find(job.a_case->scenario);
      pace != lane.paces.end() && !pace->second.hung.empty())
    assignment.patience = {short_deadline(pace->second.slowest), pace->second.hung};
  assignment.message["type"] = "case";
  assignment.message["data"] = data_.file_for(*job.a_case);
  if (!job.oracle.is_null()) {
    assignment.message["oracle"] = job.oracle;
  } else if (Json folders = checkpoints_of(*job.a_case); !folders.empty()) {
    assignment.message["checkpoints"] = std::move(folders);
  }
  return assignment;
}

Json Session::checkpoints_of(const Case& a_case) const {
  Json folders = Json::object();
  if (saves_checkpoint(a_case)) {
    // Nothing of an earlier run may be taken for this one's.
    const std::filesystem::path folder = checkpoint_folder(checkpoints_, a_case.id);
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    folders["save"] = folder.string();
  }
  if (a_case.continues.empty()) return folders;
  std::filesystem::path folder = checkpoint_folder(checkpoints_, a_case.continues);
  if (a_case.damage) {
    const std::filesystem::path copy = checkpoint_folder(scratch_.folder() / "damaged", a_case.id);
    copy_damaged(folder, *a_case.damage, copy);
    folder = copy;
  }
  folders["load"] = folder.string();
  return folders;
}

void Session::wait() {
  Clock::time_point until = Clock::time_point::max();
  for (const Slot& slot : slots_) until = std::min(until, slot.group->deadline());
  for (const auto& [program, server] : fork_servers_) until = std::min(until, server.deadline());
  // What has arrived is handled before a deadline counts, also when a callback took its time.
  if (loop_.run_once(until)) process_ready_events(loop_);
  const Clock::time_point now = Clock::now();
  for (Slot& slot : slots_) slot.group->on_time(now);
  for (auto& [program, server] : fork_servers_) server.on_time(now);
}

void Session::collect() {
  for (auto slot = slots_.begin(); slot != slots_.end();) {
    while (std::optional<CaseRun> run = slot->group->take_result()) {
      const Job* job = run->case_id.empty() ? nullptr : std::exchange(slot->job, nullptr);
      completions_.push_back({job, &slot->group->testee(), std::move(*run)});
    }
    slot = slot->group->gone() ? slots_.erase(slot) : std::next(slot);
  }
}

void Session::note(std::vector<Lane>& lanes, const Completion& completion) {
  const auto lane = std::find_if(lanes.begin(), lanes.end(),
                                 [&](const Lane& each) { return each.testee == completion.testee; });
  if (completion.job == nullptr || lane == lanes.end()) return;
  const int world = world_of(*completion.job);
  --lane->running;
  lane->running_ranks -= world;
  Lane::Starts& starts = lane->starts[world];
  starts.failed_in_a_row = never_started(completion.run) ? starts.failed_in_a_row + 1 : 0;
  if (starts.failed_in_a_row > 0) starts.last = completion.run;
  Lane::Pace& pace = lane->paces[completion.job->a_case->scenario];
  if (ended_in(completion.run, RankEnd::hang)) pace.hung = completion.run.case_id;
  if (completion.run.blame.empty()) pace.slowest = std::max(pace.slowest, completion.run.seconds.count());
}

}  // namespace fsdp_cts
