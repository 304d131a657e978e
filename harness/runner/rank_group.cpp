#include "harness/runner/rank_group.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>
#include <tuple>
#include <utility>

#include "harness/protocol/messages.hpp"
#include "harness/protocol/utf8.hpp"
#include "harness/runner/exit_reason.hpp"
#include "harness/runner/scratch.hpp"
#include "harness/runner/tensor_file.hpp"

namespace fsdp_cts {
namespace {

constexpr std::size_t max_findings = 256;  // of a device, kept of one case
constexpr std::size_t max_uses = 4096;     // a program has fewer steps, times ranks

constexpr std::size_t max_message_bytes = 500;  // bytes, in a sentence; the report has it in full

// A message that fits the schema and breaks the protocol all the same.
using ProtocolViolation = MessageError;

std::string collective_text(const Json& event) {
  std::string text = event["op"].get<std::string>() + " of " + event["in_numel"].dump() + " " +
                     event["dtype"].get<std::string>();
  if (event["unit"].is_string()) text += " (unit \"" + event["unit"].get<std::string>() + "\")";
  return text;
}

std::uintmax_t bytes_of(const TensorMap& tensors) {
  std::uintmax_t sum = 0;
  for (const auto& [name, tensor] : tensors) sum += tensor.bytes.size();
  return sum;
}

std::string seconds(Deadlines::Duration duration) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g s", duration.count());
  return text;
}

}  // namespace

// Starting

RankGroup::RankGroup(EventLoop& loop, const Guardian& guardian, const Testee& testee, int world,
                     const Limits& limits, GroupHome home, ForkServer* fork_server)
    : loop_(loop),
      guardian_(guardian),
      testee_(testee),
      limits_(limits),
      home_(std::move(home)),
      fork_server_(fork_server),
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
  findings_.clear();
  uses_.clear();
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

  Variables variables = testee_.rank_environment;
  variables["RANK"] = variables["LOCAL_RANK"] = std::to_string(number);
  variables["WORLD_SIZE"] = std::to_string(world());
  variables["MASTER_ADDR"] = "127.0.0.1";
  variables["MASTER_PORT"] = std::to_string(port_->port());
  variables["FSDP_CTS_SOCKET"] = rank.listener->address();
  variables["FSDP_CTS_TOKEN"] = home_.token;
  variables["FSDP_CTS_RENDEZVOUS"] = home_.folder / "rendezvous";
  if (fork_server_)
    rank.process = fork_server_->fork(variables, home_.folder / (std::to_string(number) + ".out"));
  if (!rank.process) {
    variables.merge(testee_variables(testee_));
    rank.process = std::make_unique<Process>(testee_.command, environment_with(variables), guardian_);
  }
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
    // The connection goes on waiting, and the loop would report it again and again.
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
      RankLink::Events{
          [this, who, slot](Json&& message) { on_message(*who, links_[slot].get(), std::move(message)); },
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
  for (const auto& link : links_) link->deactivate();
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

// Messages of the ranks. Every message is checked against the schema, then against what may come now.

std::filesystem::path RankGroup::case_folder() const {
  return home_.folder / ("c" + std::to_string(number_));
}

std::filesystem::path RankGroup::case_folder(const Rank& rank) const {
  return case_folder() / std::to_string(rank.report.rank);
}

void RankGroup::on_message(int& who, RankLink* link, Json message) {
  try {
    check_testee_message(message);
    const bool is_hello = message["type"] == "hello";
    const bool is_new = who < 0 || !ranks_[static_cast<std::size_t>(who)].greeted;
    if (is_new && !is_hello) {
      throw ProtocolViolation(
          "no_hello", "the first message has the type " + message["type"].dump() + "; it must be hello");
    }
    if (!is_new && is_hello) throw ProtocolViolation("out_of_turn", "hello was said a second time");
    if (is_new) {
      on_hello(who, link, message);
    } else {
      on_case_message(ranks_[static_cast<std::size_t>(who)], std::move(message));
    }
  } catch (const NoDescriptor& e) {
    fail(ranks_[static_cast<std::size_t>(who)], RankEnd::not_started, "no_descriptor", e.what());
  } catch (const MessageError& e) {
    if (who < 0) {
      refusals_ += std::string("; a connection was refused: ") + e.what();
      link->deactivate();
    } else {
      fail(ranks_[static_cast<std::size_t>(who)], RankEnd::protocol_error, e.code, e.what());
    }
  }
}

void RankGroup::on_hello(int& who, RankLink* link, const Json& hello) {
  if (hello["token"] != home_.token) {
    throw ProtocolViolation(
        "wrong_token", "hello carries another token than FSDP_CTS_TOKEN: is this a rank of another run?");
  }
  const auto number = hello["rank"].get<std::size_t>();
  if (number >= ranks_.size() || (who >= 0 && number != static_cast<std::size_t>(who))) {
    throw ProtocolViolation(
        "wrong_rank", "hello says rank " + std::to_string(number) + "; expected was " +
                          (who >= 0 ? std::to_string(who) : "one below " + std::to_string(ranks_.size())));
  }
  Rank& rank = ranks_[number];
  if (rank.greeted)
    throw ProtocolViolation("wrong_rank", "rank " + std::to_string(number) + " is here already");
  // Shards that lie in one address space prove nothing about sharding.
  for (std::size_t other = 0; other < ranks_.size(); ++other) {
    if (rank.speaker != 0 && other != number && ranks_[other].greeted &&
        ranks_[other].speaker == rank.speaker) {
      throw ProtocolViolation("one_process", "process " + std::to_string(rank.speaker) + " speaks for rank " +
                                                 std::to_string(other) + " and for rank " +
                                                 std::to_string(number) +
                                                 "; every rank is a process of its own");
    }
  }
  who = static_cast<int>(number);
  rank.link = link;
  rank.greeted = true;
  if (number == 0) hello_ = hello;
  hello_from_all_ = std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& each) { return each.greeted; });
  if (hello_from_all_ && phase_ == Phase::starting) dispatch();
}

void RankGroup::on_case_message(Rank& rank, Json message) {
  const std::string type = message["type"];
  const auto number = message["case"].get<long>();
  if (!hello_from_all_ || phase_ == Phase::idle || phase_ == Phase::closing) {
    throw ProtocolViolation("out_of_turn", "a message of type \"" + type + "\" came while no case was given");
  }
  if (number != number_) {
    throw ProtocolViolation("wrong_case", "a message of type \"" + type + "\" is about case " +
                                              std::to_string(number) + "; the current one is " +
                                              std::to_string(number_));
  }
  if (rank.settled)
    throw ProtocolViolation("out_of_turn",
                            "a message of type \"" + type + "\" came after the end of the case");
  rank.last_sign = Clock::now();
  if (type == "progress") {
    progress(rank, message);
  } else if (type == "observation") {
    observe(rank, std::move(message));
  } else if (type == "finding") {
    find(rank, message);
  } else if (type == "device_use") {
    use(rank, message);
  } else if (type == "done") {
    if (message.contains("launches")) rank.report.launches = message["launches"].get<long>();
    if (message.contains("kept_bytes")) rank.report.kept_bytes = message["kept_bytes"].get<long>();
    settle(rank, RankEnd::done, "", "");
  } else if (type == "unsupported") {
    settle(rank, RankEnd::unsupported, "", message["reason"]);
  } else {
    const Json& error = message["error"];
    rank.report.error = error;
    fail(rank, RankEnd::error, "exception",
         "raised " + error["type"].get<std::string>() + " (" +
             printable(shortened(error["message"].get_ref<const std::string&>(), max_message_bytes)) + ")");
  }
  check_agreement();
  conclude_if_settled();
}

void RankGroup::progress(Rank& rank, const Json& message) {
  const int step = message["step"];
  const auto steps = static_cast<int>(assignment_.message["program"].size());
  if (step >= steps) {
    throw ProtocolViolation("wrong_step", "progress at step " + std::to_string(step) + "; the program has " +
                                              std::to_string(steps) + " steps");
  }
  if (step < rank.report.last_step) {
    throw ProtocolViolation("out_of_turn", "progress at step " + std::to_string(step) + " after step " +
                                               std::to_string(rank.report.last_step));
  }
  rank.report.last_step = step;
  rank.report.last_verb = message["verb"];
}

void RankGroup::observe(Rank& rank, Json message) {
  Observation observation;
  observation.rank = message["rank"];
  observation.step = message["step"];
  if (!testee_.oracle) {
    if (observation.rank != rank.report.rank) {
      throw ProtocolViolation("wrong_rank", "an observation says rank " + std::to_string(observation.rank));
    }
    if (observation.step > rank.report.last_step) {
      throw ProtocolViolation("out_of_turn", "an observation of step " + std::to_string(observation.step) +
                                                 " before its progress");
    }
    if (observation.step <= rank.last_observed) {
      throw ProtocolViolation("out_of_turn", "an observation of step " + std::to_string(observation.step) +
                                                 " after one of step " + std::to_string(rank.last_observed));
    }
    rank.last_observed = observation.step;
  }
  if (const Json& label = message.value("label", Json()); label.is_string()) observation.label = label;
  if (const Json& iteration = message.value("iteration", Json()); iteration.is_number())
    observation.iteration = iteration;
  if (const Json& file = message.value("file", Json()); file.is_string()) {
    observation.tensors = take_tensor_file(case_folder(rank), file, limits_.tensors - tensor_bytes_);
    tensor_bytes_ += bytes_of(observation.tensors);
  }
  observation.entries = std::move(message["entries"]);
  for (const std::string& name : tensors_named_by(observation.entries)) {
    if (!observation.tensors.contains(name)) {
      throw ProtocolViolation(
          "missing_tensor", "an observation names the tensor \"" + name + "\", which its file does not hold");
    }
  }
  for (const Json& entry : observation.entries) {
    if (entry["what"] != "trace") continue;
    for (const Json& event : entry["events"]) {
      if (event["op"] != "compute") rank.last_collective = collective_text(event);
    }
  }
  observations_.push_back(std::move(observation));
}

void RankGroup::find(const Rank& rank, const Json& message) {
  DeviceFinding finding{message["rank"], message["step"], message["code"], message};
  if (finding.rank != rank.report.rank)
    throw ProtocolViolation("wrong_rank", "a finding says rank " + std::to_string(finding.rank));
  if (finding.step > rank.report.last_step) {
    throw ProtocolViolation("out_of_turn",
                            "a finding of step " + std::to_string(finding.step) + " before its progress");
  }
  // One convicts; the others say what else is to be looked at.
  if (findings_.size() < max_findings) findings_.push_back(std::move(finding));
}

void RankGroup::use(const Rank& rank, const Json& message) {
  DeviceUse use{message["rank"], message["step"], message};
  // The reference answers for all ranks of the case.
  if (use.rank != rank.report.rank && !testee_.oracle)
    throw ProtocolViolation("wrong_rank", "the use of a device says rank " + std::to_string(use.rank));
  if (use.step > rank.report.last_step) {
    throw ProtocolViolation("out_of_turn", "the use of a device in step " + std::to_string(use.step) +
                                               " comes before its progress");
  }
  if (uses_.size() < max_uses) uses_.push_back(std::move(use));
}

// `unsupported` must depend on the case alone: a rank that acts while another one refuses would wait for it
// until the deadline. A rank may find out at a step; then every rank must at the same one.
void RankGroup::check_agreement() {
  if (phase_ != Phase::running && phase_ != Phase::failing) return;
  const auto refuses = [](const Rank& each) {
    return each.settled && each.report.end == RankEnd::unsupported;
  };
  const auto refusing = std::find_if(ranks_.begin(), ranks_.end(), refuses);
  const auto acts = [&](const Rank& each) {
    return each.report.last_step > std::max(refusing->report.last_step, -1) ||
           (each.settled && each.report.end == RankEnd::done);
  };
  if (refusing == ranks_.end()) return;
  const auto acting = std::find_if(ranks_.begin(), ranks_.end(), acts);
  if (acting == ranks_.end()) return;
  fail(*refusing, RankEnd::protocol_error, "unsupported_disagreement",
       "called the case unsupported (" + refusing->report.detail + ") while rank " +
           std::to_string(acting->report.rank) + " acts it out");
}

// Ending: of a case on each rank, then of the group.

void RankGroup::take_output(Rank& rank) {
  std::array<char, 262144> bytes;
  // Bounded, so that a rank that writes without end does not delay the others.
  for (int turn = 0; turn < 16; ++turn) {
    const ssize_t n = ::read(rank.process->output(), bytes.data(), bytes.size());
    if (n == 0) loop_.unwatch(rank.process->output());
    if (n <= 0) return;
    rank.output.append({bytes.data(), static_cast<std::size_t>(n)});
  }
}

void RankGroup::process_ended(Rank& rank) {
  // What it said and wrote before its end comes first.
  if (rank.link != nullptr) rank.link->drain();
  take_output(rank);
  const std::optional<int> status = rank.process->reap();
  loop_.unwatch(rank.process->end());
  if (!status) return;  // a debugger holds it and reports its end later
  loop_.unwatch(rank.process->output());
  if (phase_ == Phase::terminating) return leave_if_empty();
  if (phase_ == Phase::examining || phase_ == Phase::gone) return;
  if (bye_said_ && *status == 0) {
    settle(rank, RankEnd::done, "", "");
    return conclude_if_settled();
  }
  if (rank.settled && rank.report.end != RankEnd::done && phase_ == Phase::failing)
    return;  // its own failure came first
  if (ends_by_the_program(rank)) {
    rank.left = true;
    settle(rank, RankEnd::done, "", "");
    return conclude_if_settled();
  }
  const ExitReason reason = explain_exit(*status, rank.output.text(), oom_kill_count() - oom_kills_before_);
  if (rank.stream_ended.value_or(false) && WIFEXITED(*status)) {
    return fail(rank, RankEnd::protocol_error, "truncated_frame",
                "its socket ended inside a frame, and it " + reason.sentence);
  }
  if (!rank.greeted)
    return fail(rank, RankEnd::not_started, reason.code, "it " + reason.sentence + " before it said hello");
  std::string sentence = reason.sentence;
  if (assignment_.case_id.empty() && !bye_said_) sentence += " between two cases, after " + previous_case_;
  fail(rank, RankEnd::crash, reason.code, std::move(sentence));
}

void RankGroup::stream_closed(Rank& rank, bool inside_frame) {
  rank.stream_ended = inside_frame;
  if (bye_said_ && !rank.process) {  // ranks started elsewhere end out of sight
    settle(rank, RankEnd::done, "", "");
    return conclude_if_settled();
  }
  if (bye_said_ || (rank.settled && rank.report.end != RankEnd::done)) return;
  if (rank.left) return;
  if (ends_by_the_program(rank) && !inside_frame) {
    if (rank.process) return;
    rank.left = true;
    settle(rank, RankEnd::done, "", "");
    return conclude_if_settled();
  }
  // Most often the process has ended, and its exit status, which comes a moment later, tells more. Until then
  // its report is open.
  begin_failing();
  rank.settled = false;
}

bool RankGroup::ends_by_the_program(const Rank& rank) const {
  if (assignment_.case_id.empty() || rank.settled || rank.report.last_step < 0) return false;
  // What the program says there, and not the rank.
  const Json& step = assignment_.message["program"][static_cast<std::size_t>(rank.report.last_step)];
  if (step.at("verb") != "end_process") return false;
  const auto ranks = step.value("ranks", std::vector<int>{});
  return std::find(ranks.begin(), ranks.end(), rank.report.rank) != ranks.end();
}

void RankGroup::settle(Rank& rank, RankEnd end, std::string code, std::string detail) {
  rank.settled = true;
  rank.report.end = end;
  rank.report.detail_code = std::move(code);
  rank.report.detail = std::move(detail);
}

void RankGroup::fail(Rank& rank, RankEnd end, std::string code, std::string detail) {
  begin_failing();
  if (end == RankEnd::protocol_error) {
    detail = "broke the protocol (" + code + "): " + detail;
    if (rank.link != nullptr) rank.link->deactivate();
  }
  settle(rank, end, std::move(code), std::move(detail));
  rank.failed_at = Clock::now();
  conclude_if_settled();
}

void RankGroup::begin_failing() {
  if (phase_ == Phase::idle) begin({});  // it happened between two cases and needs a report of its own
  if (phase_ == Phase::starting || phase_ == Phase::running || phase_ == Phase::closing ||
      phase_ == Phase::idle) {
    phase_ = Phase::failing;
    phase_began_ = Clock::now();
  }
}

void RankGroup::examine(std::string code) {
  expiry_code_ = std::move(code);
  phase_ = Phase::examining;
  phase_began_ = Clock::now();
  for (const auto& link : links_) link->deactivate();
  for (Rank& rank : ranks_) {
    if (!rank.process || rank.process->reap()) continue;
    rank.stacks = std::make_unique<StackCollector>(loop_, rank.process->pid(), guardian_,
                                                   [this] { conclude_if_settled(); });
  }
  conclude_if_settled();
}

void RankGroup::conclude_if_settled() {
  if (phase_ == Phase::examining) {
    const bool looking = std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
      return rank.stacks && !rank.stacks->finished();
    });
    if (!looking) conclude();
    return;
  }
  if (phase_ != Phase::running && phase_ != Phase::closing && phase_ != Phase::failing) return;
  if (std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.settled; })) conclude();
}

void RankGroup::settle_the_rest() {
  for (Rank& rank : ranks_) {
    if (rank.settled) continue;
    if (phase_ != Phase::examining) {
      if (rank.stream_ended) {
        const std::string code = *rank.stream_ended ? "truncated_frame" : "closed_socket";
        settle(rank, RankEnd::protocol_error, code,
               "broke the protocol (" + code + "): it closed its socket " +
                   (*rank.stream_ended ? "inside a frame" : "before the end") +
                   (rank.process ? " and lives on" : ""));
        rank.failed_at = phase_began_;
      } else {
        settle(rank, RankEnd::aborted, "aborted", "was ended because another rank failed");
      }
    } else if (!rank.greeted) {
      settle(rank, RankEnd::not_started, expiry_code_,
             "it never said hello within " + seconds(limits_.deadlines.start) + refusals_);
    } else if (expiry_code_ == "no_hello") {
      settle(rank, RankEnd::aborted, "aborted", "waited for ranks that never said hello");
    } else {
      settle(rank, RankEnd::hang, expiry_code_, "hangs in " + place(rank.report));
    }
  }
}

std::vector<RankSituation> RankGroup::situations() const {
  std::vector<RankSituation> result;
  for (const Rank& rank : ranks_) {
    RankSituation situation;
    situation.report = &rank.report;
    situation.last_collective = rank.last_collective;
    if (rank.stacks && rank.report.end != RankEnd::done) {
      Stacks stacks = rank.stacks->result();
      situation.activity = stacks.activity;
      situation.collective = std::move(stacks.collective);
    }
    situation.silent_seconds = std::chrono::duration<double>(phase_began_ - rank.last_sign).count();
    if (rank.failed_at)
      situation.failed_at = std::chrono::duration<double>(*rank.failed_at - assigned_at_).count();
    result.push_back(std::move(situation));
  }
  return result;
}

void RankGroup::conclude() {
  settle_the_rest();
  const Phase ended_in = phase_;
  for (Rank& rank : ranks_) {
    if (rank.process) take_output(rank);
    rank.report.captured_output = rank.output.text();
    if (rank.stacks) rank.report.stacks = rank.stacks->result().text;
  }
  CaseRun run;
  run.case_id = assignment_.case_id;
  run.hello = hello_;
  run.blame = blame_sentence(situations());
  if (assignment_.patience && expiry_code_ == "verb_deadline") {
    run.blame += "; a step had " + seconds(verb_patience()) + " instead of " +
                 seconds(limits_.deadlines.verb * assignment_.slowness) + ", because " +
                 assignment_.patience->because + " hung before";
  }
  for (const Rank& rank : ranks_) run.ranks.push_back(rank.report);
  run.observations = std::move(observations_);
  // Which rank is heard first is chance; the first finding of the report must not be.
  std::stable_sort(findings_.begin(), findings_.end(), [](const DeviceFinding& a, const DeviceFinding& b) {
    return std::tie(a.step, a.rank) < std::tie(b.step, b.rank);
  });
  run.findings = std::move(findings_);
  std::stable_sort(uses_.begin(), uses_.end(), [](const DeviceUse& a, const DeviceUse& b) {
    return std::tie(a.step, a.rank) < std::tie(b.step, b.rank);
  });
  run.uses = std::move(uses_);
  run.seconds = Clock::now() - assigned_at_;
  count_sent(run);
  std::error_code ignored;
  std::filesystem::remove_all(case_folder(), ignored);

  const bool whole = std::none_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.left; });
  const bool clean = whole && (ended_in == Phase::running || ended_in == Phase::closing);
  if (ended_in != Phase::closing) results_.push_back(std::move(run));
  phase_ = Phase::idle;
  if (!clean || ended_in == Phase::closing) terminate();
}

// Nothing unless all ranks came to the end: only then have all sends of the case been made.
void RankGroup::count_sent(CaseRun& run) const {
  const bool all_done = std::all_of(ranks_.begin(), ranks_.end(),
                                    [](const Rank& rank) { return rank.report.end == RankEnd::done; });
  if (!all_done || !sent_before_) return;
  const auto now = sent_so_far();
  if (!now) return;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const auto sent = sent_between(sent_before_->at(i), now->at(i));
    if (!sent) {
      run.closed_connection = static_cast<int>(i);
      return;
    }
    sum += *sent;
  }
  run.sent = sum;
}

void RankGroup::leave_if_empty() {
  const bool ended = std::all_of(ranks_.begin(), ranks_.end(),
                                 [](const Rank& rank) { return !rank.process || rank.process->reap(); });
  if (!ended && !killed_) return;
  const Clock::time_point now = Clock::now();
  if (!leaving_since_) leaving_since_ = now;
  bool empty = true;
  for (Rank& rank : ranks_) empty &= !rank.process || rank.process->group_gone();
  if (phase_ != Phase::fresh && !testee_.self) empty &= strays_.gone();
  if (empty || now >= *leaving_since_ + clock_duration(limits_.deadlines.leftovers)) return leave();
  look_again_ = now + std::chrono::milliseconds(10);
}

void RankGroup::leave() {
  for (Rank& rank : ranks_) {
    if (!rank.process) continue;
    loop_.unwatch(rank.process->end());
    loop_.unwatch(rank.process->output());
  }
  std::error_code ignored;
  std::filesystem::remove_all(home_.folder, ignored);
  phase_ = Phase::gone;
}

}  // namespace fsdp_cts
