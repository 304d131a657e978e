// What ranks say. Every message is checked against the schema, then against what may come now.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "harness/protocol/messages.hpp"
#include "harness/protocol/safetensors.hpp"
#include "harness/protocol/utf8.hpp"
#include "harness/runner/rank_group.hpp"

namespace fsdp_cts {
namespace {

constexpr std::size_t most_of_a_message = 500;  // bytes, in a sentence; the report has it in full

// Something that is wrong with a message although it fits the schema.
using Offence = MessageError;

std::string collective_text(const Json& event) {
  std::string text = event["op"].get<std::string>() + " of " + event["in_numel"].dump() + " " +
                     event["dtype"].get<std::string>();
  if (event["unit"].is_string()) text += " (unit \"" + event["unit"].get<std::string>() + "\")";
  return text;
}

// What a rank cannot help.
class NoDescriptor : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { reset(-1); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  void reset(int number) {
    if (number_ >= 0) ::close(number_);
    number_ = number;
  }
  operator int() const { return number_; }

 private:
  int number_;
};

// The tensor file that an observation names, taken out of the scratch folder. A rank may hand over any bytes;
// it may not make the runner wait, nor read or remove another place. So the path is walked part by part, from
// the folder down and never through a link, and what was opened is what is looked at, read and removed.
TensorMap take_tensor_file(const std::filesystem::path& folder, const std::string& name,
                           std::uintmax_t most) {
  const auto refuse = [&](const char* code, const std::string& what) {
    throw Offence(code, "the tensor file \"" + name + "\" " + what);
  };
  const std::filesystem::path path(name);
  const bool below = path.is_relative() && path.has_filename() &&
                     std::none_of(path.begin(), path.end(), [](const auto& part) { return part == ".."; });
  if (!below) refuse("file_outside_scratch", "is not a path below the case's scratch folder");
  const auto refuse_failure = [&] {
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
      throw NoDescriptor("the runner cannot open its tensor file \"" + name + "\": " + std::strerror(errno));
    if (errno == ENOENT) refuse("missing_file", "does not exist in the case's scratch folder");
    if (errno == ELOOP || errno == ENOTDIR || errno == ENXIO)
      refuse("not_a_file", "in the case's scratch folder is a link, lies behind one, or is no file");
    refuse("unreadable_file", std::string("cannot be opened: ") + std::strerror(errno));
  };
  Descriptor directory(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (const auto& part : path.parent_path()) {
    if (directory < 0) refuse_failure();
    directory.reset(::openat(directory, part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  }
  if (directory < 0) refuse_failure();
  const std::string last = path.filename();
  // Not blocking: it may be a pipe that nobody writes.
  const Descriptor file(::openat(directory, last.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file < 0) refuse_failure();
  struct stat facts {};
  if (::fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode)) refuse("not_a_file", "is not a regular file");
  if (const auto size = static_cast<std::uintmax_t>(facts.st_size); size > most)
    refuse("oversize_file",
           "has " + std::to_string(size) + " bytes; the case may still hand over " + std::to_string(most));
  try {
    TensorMap tensors = read_safetensors(file, folder / path);
    ::unlinkat(directory, last.c_str(), 0);
    return tensors;
  } catch (const SafetensorsError& e) {
    throw Offence(e.code, e.what());
  } catch (const std::system_error& e) {
    throw Offence("unreadable_file", e.what());
  }
}

std::uintmax_t bytes_of(const TensorMap& tensors) {
  std::uintmax_t sum = 0;
  for (const auto& [name, tensor] : tensors) sum += tensor.bytes.size();
  return sum;
}

}  // namespace

std::filesystem::path RankGroup::case_folder() const {
  return home_.folder / ("c" + std::to_string(number_));
}

std::filesystem::path RankGroup::case_folder(const Rank& rank) const {
  return case_folder() / std::to_string(rank.report.rank);
}

void RankGroup::hear(int& who, RankLink* link, const Json& message) {
  try {
    check_testee_message(message);
    const bool greeting = message["type"] == "hello";
    const bool stranger = who < 0 || !ranks_[static_cast<std::size_t>(who)].greeted;
    if (stranger && !greeting) {
      throw Offence("no_hello",
                    "the first message has the type " + message["type"].dump() + "; it must be hello");
    }
    if (!stranger && greeting) throw Offence("out_of_turn", "hello was said a second time");
    if (stranger) {
      greet(who, link, message);
    } else {
      hear_in_case(ranks_[static_cast<std::size_t>(who)], message);
    }
  } catch (const NoDescriptor& e) {
    fail(ranks_[static_cast<std::size_t>(who)], RankEnd::not_started, "no_descriptor", e.what());
  } catch (const MessageError& e) {
    if (who < 0) {
      refusals_ += std::string("; a connection was refused: ") + e.what();
      link->silence();
    } else {
      fail(ranks_[static_cast<std::size_t>(who)], RankEnd::protocol_error, e.code, e.what());
    }
  }
}

void RankGroup::greet(int& who, RankLink* link, const Json& hello) {
  if (hello["token"] != home_.token) {
    throw Offence("wrong_token",
                  "hello carries another token than FSDP_CTS_TOKEN: is this a rank of another run?");
  }
  const auto number = hello["rank"].get<std::size_t>();
  if (number >= ranks_.size() || (who >= 0 && number != static_cast<std::size_t>(who))) {
    throw Offence("wrong_rank",
                  "hello says rank " + std::to_string(number) + "; expected was " +
                      (who >= 0 ? std::to_string(who) : "one below " + std::to_string(ranks_.size())));
  }
  Rank& rank = ranks_[number];
  if (rank.greeted) throw Offence("wrong_rank", "rank " + std::to_string(number) + " is here already");
  // Shards that lie in one address space prove nothing about sharding.
  for (std::size_t other = 0; other < ranks_.size(); ++other) {
    if (rank.speaker != 0 && other != number && ranks_[other].greeted && ranks_[other].speaker == rank.speaker) {
      throw Offence("one_process", "process " + std::to_string(rank.speaker) + " speaks for rank " + std::to_string(other) +
                                       " and for rank " + std::to_string(number) + "; every rank is a process of its own");
    }
  }
  who = static_cast<int>(number);
  rank.link = link;
  rank.greeted = true;
  if (number == 0) hello_ = hello;
  hello_from_all_ = std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& each) { return each.greeted; });
  if (hello_from_all_ && phase_ == Phase::starting) dispatch();
}

void RankGroup::hear_in_case(Rank& rank, const Json& message) {
  const std::string type = message["type"];
  const auto number = message["case"].get<long>();
  if (!hello_from_all_ || phase_ == Phase::idle || phase_ == Phase::closing) {
    throw Offence("out_of_turn", "a message of type \"" + type + "\" came while no case was given");
  }
  if (number != number_) {
    throw Offence("wrong_case", "a message of type \"" + type + "\" is about case " + std::to_string(number) +
                                    "; the current one is " + std::to_string(number_));
  }
  if (rank.settled)
    throw Offence("out_of_turn", "a message of type \"" + type + "\" came after the end of the case");
  rank.last_sign = Clock::now();
  if (type == "progress") {
    progress(rank, message);
  } else if (type == "observation") {
    observe(rank, message);
  } else if (type == "done") {
    settle(rank, RankEnd::done, "", "");
  } else if (type == "unsupported") {
    settle(rank, RankEnd::unsupported, "", message["reason"]);
  } else {
    const Json& error = message["error"];
    rank.report.error = error;
    fail(rank, RankEnd::error, "exception",
         "raised " + error["type"].get<std::string>() + " (" +
             printable(shortened(error["message"].get_ref<const std::string&>(), most_of_a_message)) + ")");
  }
  check_agreement();
  conclude_if_settled();
}

void RankGroup::progress(Rank& rank, const Json& message) {
  const int step = message["step"];
  const auto steps = static_cast<int>(assignment_.message["program"].size());
  if (step >= steps) {
    throw Offence("wrong_step", "progress at step " + std::to_string(step) + "; the program has " +
                                    std::to_string(steps) + " steps");
  }
  if (step < rank.report.last_step) {
    throw Offence("out_of_turn", "progress at step " + std::to_string(step) + " after step " +
                                     std::to_string(rank.report.last_step));
  }
  rank.report.last_step = step;
  rank.report.last_verb = message["verb"];
}

void RankGroup::observe(Rank& rank, const Json& message) {
  Observation observation;
  observation.rank = message["rank"];
  observation.step = message["step"];
  if (!testee_.oracle) {
    if (observation.rank != rank.report.rank) {
      throw Offence("wrong_rank", "an observation says rank " + std::to_string(observation.rank));
    }
    if (observation.step > rank.report.last_step) {
      throw Offence("out_of_turn",
                    "an observation of step " + std::to_string(observation.step) + " before its progress");
    }
    if (observation.step <= rank.last_observed) {
      throw Offence("out_of_turn", "an observation of step " + std::to_string(observation.step) +
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
  observation.entries = message["entries"];
  for (const std::string& name : tensors_named_by(observation.entries)) {
    if (!observation.tensors.contains(name)) {
      throw Offence("missing_tensor",
                    "an observation names the tensor \"" + name + "\", which its file does not hold");
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

}  // namespace fsdp_cts
