#include "harness/runner/rank_group.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <system_error>
#include <utility>

#include "harness/runner/exit_reason.hpp"
#include "harness/runner/scratch.hpp"

namespace fsdp_cts {
namespace {

// The runner's own environment with `changes` on top. What an outer run of the suite has set for its ranks is
// not handed on.
std::vector<std::string> environment_with(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> result;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string entry = *each;
    const std::string name = entry.substr(0, entry.find('='));
    if (!changes.contains(name) && name != "FSDP_CTS_ROLE") result.push_back(entry);
  }
  for (const auto& [name, value] : changes) result.push_back(name + "=" + value);
  return result;
}

}  // namespace

RankGroup::RankGroup(EventLoop& loop, const Guardian& guardian, const Testee& testee, int world,
                     const Limits& limits, GroupHome home)
    : loop_(loop),
      guardian_(guardian),
      testee_(testee),
      limits_(limits),
      home_(std::move(home)),
      strays_(home_.mark) {
  for (int rank = 0; rank < world; ++rank) ranks_.emplace_back(limits);
}

RankGroup::~RankGroup() {
  for (Rank& rank : ranks_) {
    if (rank.listener) loop_.unwatch(rank.listener->fd());
    if (!rank.process) continue;
    loop_.unwatch(rank.process->output());
    loop_.unwatch(rank.process->end());
  }
  if (listener_) loop_.unwatch(listener_->fd());
  const bool leftovers = phase_ != Phase::fresh && phase_ != Phase::gone && !testee_.self;
  ranks_.clear();
  if (leftovers) strays_.end();
  std::error_code ignored;
  std::filesystem::remove_all(home_.folder, ignored);
}

void RankGroup::run(Assignment assignment) {
  const bool fresh = phase_ == Phase::fresh;
  begin(std::move(assignment));
  phase_ = fresh ? Phase::starting : Phase::running;
  if (fresh) {
    start();
  } else {
    dispatch();
  }
}

void RankGroup::begin(Assignment assignment) {
  previous_case_ = std::exchange(assignment_, std::move(assignment)).case_id;
  observations_.clear();
  tensor_bytes_ = 0;
  ++number_;
  assigned_at_ = phase_began_ = Clock::now();
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    rank.report = {};
    rank.report.rank = static_cast<int>(i);
    rank.settled = false;
    rank.failed_at.reset();
    rank.last_collective.clear();
    rank.last_observed = -1;
    rank.last_sign = assigned_at_;
  }
}

void RankGroup::start() {
  oom_kills_before_ = oom_kill_count();
  try {
    if (testee_.self) {
      listen_for_ranks();
      return;
    }
    port_ = std::make_unique<PortReservation>();
    for (int rank = 0; rank < world(); ++rank) start_process(rank);
  } catch (const SpawnError& e) {
    Rank& rank = *std::find_if(ranks_.begin(), ranks_.end(), [](const Rank& each) { return !each.process; });
    settle(rank, RankEnd::not_started, e.code, e.what());
    conclude();
  } catch (const ScratchError& e) {
    settle(ranks_.front(), RankEnd::not_started, "scratch", e.what());
    conclude();
  }
}

void RankGroup::start_process(int number) {
  Rank& rank = ranks_[static_cast<std::size_t>(number)];
  rank.listener =
      std::make_unique<Listener>(Listener::unix_socket(home_.folder / (std::to_string(number) + ".sock")));
  loop_.watch(rank.listener->fd(), [this, &rank, number] { accept(*rank.listener, number); });

  std::map<std::string, std::string> variables = testee_.environment;
  // As torchrun does: W ranks with a thread per core each would stand in each other's way.
  if (std::getenv("OMP_NUM_THREADS") == nullptr) variables.try_emplace("OMP_NUM_THREADS", "1");
  variables["RANK"] = variables["LOCAL_RANK"] = std::to_string(number);
  variables["WORLD_SIZE"] = std::to_string(world());
  variables["MASTER_ADDR"] = "127.0.0.1";
  variables["MASTER_PORT"] = std::to_string(port_->port());
  variables["FSDP_CTS_SOCKET"] = rank.listener->address();
  variables["FSDP_CTS_TOKEN"] = home_.token;
  variables["FSDP_CTS_RENDEZVOUS"] = home_.folder / "rendezvous";
  if (testee_.oracle) variables["FSDP_CTS_ROLE"] = "oracle";
  rank.process = std::make_unique<Process>(testee_.command, environment_with(variables), guardian_);
  loop_.watch(rank.process->output(), [this, &rank] { take_output(rank); });
  loop_.watch(rank.process->end(), [this, &rank] { process_ended(rank); });
}

void RankGroup::listen_for_ranks() {
  listener_ = std::make_unique<Listener>(Listener::tcp(testee_.self->listen));
  loop_.watch(listener_->fd(), [this] { accept(*listener_, -1); });
  testee_.self->invite({listener_->address(), home_.token, home_.folder / "rendezvous", world()});
}

void RankGroup::accept(const Listener& listener, int rank) {
  const int fd = listener.accept();
  if (fd < 0) {
    if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
    // The connection goes on waiting, and the loop would be told of it for ever.
    const std::string reason = std::strerror(errno);
    loop_.unwatch(listener.fd());
    return fail(ranks_[static_cast<std::size_t>(std::max(rank, 0))], RankEnd::not_started, "no_descriptor",
                "the runner cannot accept its connection (" + reason +
                    "). Raise the limit of open files (ulimit -n), or run fewer groups (--jobs)");
  }
  // A connection over TCP has no rank before its hello.
  const auto who = std::make_shared<int>(rank);
  const auto slot = links_.size();
  const auto known = [this, who](auto action) {
    if (*who >= 0) action(ranks_[static_cast<std::size_t>(*who)]);
  };
  links_.push_back(std::make_unique<RankLink>(
      loop_, fd,
      RankLink::Events{[this, who, slot](Json&& message) { hear(*who, links_[slot].get(), message); },
                       [this, known](const FrameError& e) {
                         known([&](Rank& each) { fail(each, RankEnd::protocol_error, e.code, e.what()); });
                       },
                       [this, known](bool inside_frame) {
                         known([&](Rank& each) { stream_closed(each, inside_frame); });
                       }}));
  if (rank < 0) return;
  Rank& owner = ranks_[static_cast<std::size_t>(rank)];
  owner.link = links_.back().get();
  owner.speaker = Listener::peer_process(fd);
  loop_.unwatch(listener.fd());
  owner.listener.reset();  // one connection per rank
}

void RankGroup::dispatch() {
  phase_ = Phase::running;
  phase_began_ = Clock::now();
  try {
    make_folder(case_folder());
    for (const Rank& rank : ranks_) make_folder(case_folder(rank));
  } catch (const ScratchError& e) {
    fail(ranks_.front(), RankEnd::not_started, "scratch", e.what());
    return;
  }
  sent_before_ = sent_so_far();
  assignment_.message["case"] = number_;
  for (Rank& rank : ranks_) {
    rank.last_sign = phase_began_;
    rank.output.clear();
    assignment_.message["scratch"] = case_folder(rank);
    rank.link->send(assignment_.message);
  }
}

// Ranks that talk over Gloo do it over TCP; other backends leave nothing for the kernel to count.
std::optional<std::vector<SocketBytes>> RankGroup::sent_so_far() const {
  if (testee_.self || testee_.oracle || hello_.value("backend", "") != "gloo") return std::nullopt;
  std::vector<pid_t> processes;
  for (const Rank& rank : ranks_) processes.push_back(rank.process->pid());
  return tcp_bytes_sent(processes);
}

void RankGroup::close() {
  if (phase_ == Phase::idle) {
    begin({});
    phase_ = Phase::closing;
    bye_said_ = true;
    for (Rank& rank : ranks_) {
      rank.report.last_verb = "bye";
      rank.link->send({{"type", "bye"}});
    }
    conclude_if_settled();
  } else if (phase_ == Phase::fresh) {
    leave_if_empty();
  }
}

void RankGroup::terminate() {
  if (phase_ == Phase::terminating || phase_ == Phase::gone) return;
  phase_ = Phase::terminating;
  phase_began_ = Clock::now();
  for (const auto& link : links_) link->silence();
  for (Rank& rank : ranks_) {
    if (rank.listener) loop_.unwatch(rank.listener->fd());
    if (rank.process) rank.process->signal_group(SIGTERM);
  }
  if (listener_) loop_.unwatch(listener_->fd());
  leave_if_empty();
}

std::optional<CaseRun> RankGroup::take_result() {
  if (results_.empty()) return std::nullopt;
  CaseRun run = std::move(results_.front());
  results_.pop_front();
  return run;
}

Deadlines::Duration RankGroup::verb_patience() const {
  const Deadlines::Duration usual = limits_.deadlines.verb * assignment_.slowness;
  return assignment_.patience ? std::min(usual, assignment_.patience->verb) : usual;
}

Clock::time_point RankGroup::deadline() const {
  const Deadlines& deadlines = limits_.deadlines;
  const auto after = [this](Deadlines::Duration duration) { return phase_began_ + clock_duration(duration); };
  switch (phase_) {
    case Phase::starting:
      return after(deadlines.start);
    case Phase::closing:
      return after(deadlines.bye);
    case Phase::failing:
      return after(deadlines.grace);
    case Phase::examining:
      return after(deadlines.stacks);
    case Phase::terminating:
      return leaving_since_ ? look_again_ : after(deadlines.terminate);
    case Phase::running:
      break;
    case Phase::fresh:
    case Phase::idle:
    case Phase::gone:
      return Clock::time_point::max();
  }
  Clock::time_point first = after(deadlines.total * assignment_.slowness);
  for (const Rank& rank : ranks_) {
    if (rank.settled) continue;
    const Deadlines::Duration patience = rank.report.last_step < 0 ? deadlines.rendezvous : verb_patience();
    first = std::min(first, rank.last_sign + clock_duration(patience));
  }
  return first;
}

void RankGroup::on_time(Clock::time_point now) {
  if (now < deadline()) return;
  switch (phase_) {
    case Phase::starting:
      return examine("no_hello");
    case Phase::closing:
      return examine("bye_deadline");
    case Phase::running:
      return examine(now >= phase_began_ + clock_duration(limits_.deadlines.total * assignment_.slowness)
                         ? "case_deadline"
                         : "verb_deadline");
    case Phase::failing:
    case Phase::examining:
      return conclude();
    case Phase::terminating:
      if (!std::exchange(killed_, true)) {
        for (Rank& rank : ranks_) {
          if (rank.process) rank.process->signal_group(SIGKILL);
        }
      }
      return leave_if_empty();
    case Phase::fresh:
    case Phase::idle:
    case Phase::gone:
      return;
  }
}

}  // namespace fsdp_cts
