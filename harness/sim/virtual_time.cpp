#include "harness/sim/virtual_time.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <set>
#include <utility>

#include "harness/sim/memory.hpp"
#include "harness/sim/streams.hpp"

namespace fsdp_cts::sim {
namespace {

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

const Machine* machine_named(const std::string& name, const char* asked_by) {
  if (name.empty()) return nullptr;
  const Machine* const found = find_machine(name);
  TORCH_CHECK(found != nullptr, asked_by, ": device sim has no machine '", name, "'; there are ",
              table_of_machines());
  return found;
}

std::atomic<const Machine*>& choice() {
  static std::atomic<const Machine*> chosen =
      machine_named(environment("FSDP_SIM_MACHINE"), "FSDP_SIM_MACHINE");
  return chosen;
}

const Machine& needed_machine(const char* what) {
  const Machine* const machine = chosen_machine();
  TORCH_CHECK(machine != nullptr, what,
              " of device sim needs a machine whose virtual time it keeps: set_machine, or FSDP_SIM_MACHINE; "
              "there are ",
              table_of_machines());
  return *machine;
}

Nanoseconds rounded(double duration) {
  return static_cast<Nanoseconds>(std::ceil(duration));
}

// In order, without overlaps.
std::vector<Span> merged(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  std::vector<Span> whole;
  for (const Span& span : spans) {
    if (whole.empty() || whole.back().end < span.begin)
      whole.push_back(span);
    else
      whole.back().end = std::max(whole.back().end, span.end);
  }
  return whole;
}

Nanoseconds length(const std::vector<Span>& whole) {
  Nanoseconds sum = 0;
  for (const Span& span : whole) sum += span.end - span.begin;
  return sum;
}

Nanoseconds length_of_both(const std::vector<Span>& a, const std::vector<Span>& b) {
  Nanoseconds sum = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    sum += std::max<Nanoseconds>(0, std::min(a[i].end, b[j].end) - std::max(a[i].begin, b[j].begin));
    if (a[i].end < b[j].end)
      ++i;
    else
      ++j;
  }
  return sum;
}

std::string quoted(const std::string& text) {
  std::string made = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      made.append(1, '\\').append(1, c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::array<char, 8> escaped{};
      std::snprintf(escaped.data(), escaped.size(), "\\u%04x", static_cast<unsigned>(c));
      made += escaped.data();
    } else {
      made += c;
    }
  }
  return made + "\"";
}

// The unit of the format, without going through floating point.
std::string in_microseconds(Nanoseconds time) {
  const std::string fraction = std::to_string(1000 + time % 1000);
  return std::to_string(time / 1000) + "." + fraction.substr(1);
}

int rank_of_process() {
  return std::atoi(environment("RANK").c_str());
}

std::string file_of_rank() {
  return "rank" + std::to_string(rank_of_process()) + ".json";
}

void write_whole(const std::filesystem::path& file, const std::string& text) {
  const std::filesystem::path beside = file.string() + ".partial";
  std::ofstream stream(beside, std::ios::binary);
  stream << text;
  stream.close();
  if (!stream) throw std::runtime_error("the trace " + beside.string() + " cannot be written");
  std::filesystem::rename(beside, file);
}

}  // namespace

const Machine* chosen_machine() {
  return choice().load(std::memory_order_relaxed);
}

void follow_environment() {
  if (!environment("FSDP_SIM_TRACE").empty()) needed_machine("FSDP_SIM_TRACE");
  chosen_machine();
  Recorder::instance();
}

void set_machine(const std::string& name) {
  choice() = machine_named(name, "set_machine");
}

std::string machine() {
  const Machine* const chosen = chosen_machine();
  return chosen == nullptr ? "" : std::string(chosen->name);
}

Nanoseconds duration_of(const Machine& machine, const Cost& cost) {
  const double rate = cost.bits >= 64 ? machine.rate_64 : cost.bits >= 32 ? machine.rate_32 : machine.rate_16;
  return machine.kernel_launch +
         rounded(std::max(cost.bytes / machine.memory_bandwidth, cost.operations / rate));
}

Nanoseconds duration_of_copy(const Machine& machine, double bytes) {
  return machine.kernel_launch + rounded(bytes / machine.link_bandwidth);
}

Nanoseconds duration_of_collective(const Machine& machine, Pattern pattern, int ranks, double bytes) {
  if (ranks < 2) return duration_of(machine, {.bytes = bytes});
  const double others = (ranks - 1) / static_cast<double>(ranks);
  const double sent = pattern == Pattern::broadcast    ? bytes
                      : pattern == Pattern::all_reduce ? 2 * others * bytes
                                                       : others * bytes;
  const int steps = (pattern == Pattern::all_reduce ? 2 : 1) * (ranks - 1);
  return machine.ring_base + steps * machine.ring_step + rounded(sent / machine.ring_bandwidth);
}

double bytes_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return 0;
  const Extent extent = extent_of(tensor);
  return static_cast<double>(std::min<std::size_t>(tensor.nbytes(), extent.end - extent.begin));
}

void spend(const Machine& machine, const Checker::Step& step, Kind kind, Nanoseconds duration,
           Nanoseconds earliest) {
  if (!step.noted()) return;
  const Span span = Checker::instance().spend(step.on(), machine.host_launch, duration, earliest);
  Recorder::instance().ran(step.on(), step.operation(), kind, span);
}

void delay_stream(c10::Stream stream, std::chrono::nanoseconds duration) {
  if (chosen_machine() == nullptr || duration.count() <= 0 || Checker::instance().suspended()) return;
  const Timeline on = timeline_of(stream);
  Recorder::instance().delayed(on, Checker::instance().spend(on, 0, duration.count()));
}

void mark() {
  needed_machine("mark");
  mark_memory();
  Recorder::instance().mark(Checker::instance().host_catches_up());
}

StepNumbers since_mark() {
  needed_machine("since_mark");
  StepNumbers numbers = Recorder::instance().since_mark(Checker::instance().host_catches_up());
  numbers.peak_memory = peaks_since_mark();
  return numbers;
}

void begin_trace(const std::filesystem::path& file) {
  needed_machine("a trace");
  Recorder::instance().begin_trace(file);
}
void begin_trace_of(const std::string& part) {
  const std::string folder = environment("FSDP_SIM_TRACE");
  if (folder.empty()) return;
  begin_trace(std::filesystem::path(folder) / part / file_of_rank());
  Checker::instance().restart_time();
}
void write_trace() {
  Recorder::instance().write_trace();
}
void end_trace() {
  Recorder::instance().end_trace();
}

Recorder& Recorder::instance() {
  static auto* const recorder = new Recorder;
  return *recorder;
}

Recorder::Recorder() {
  const std::string folder = environment("FSDP_SIM_TRACE");
  if (folder.empty()) return;
  begin_trace(std::filesystem::path(folder) / file_of_rank());
  std::atexit([] {
    try {
      sim::end_trace();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "device sim: %s\n", error.what());
    }
  });
}

void Recorder::note(const Entry& entry) {
  const std::lock_guard lock(mutex_);
  if (marked_ && entry.what == What::collective) communicated_.push_back(entry.span);
  if (marked_ && (entry.what == What::compute || entry.what == What::delay)) computed_.push_back(entry.span);
  if (file_.empty()) return;
  entries_.push_back(entry);
  for (auto instant = instants_.rbegin(); instant != instants_.rend() && !instant->placed; ++instant) {
    if (instant->on != entry.on) continue;
    instant->at = entry.span.begin;
    instant->placed = true;
  }
}

void Recorder::ran(Timeline on, std::uint32_t operation, Kind kind, Span span) {
  if (idle_) return;
  const What what = kind == Kind::compute ? What::compute
                    : kind == Kind::copy  ? What::copy
                                          : What::collective;
  note({on, operation, what, span});
}

void Recorder::delayed(Timeline on, Span span) {
  if (!idle_) note({on, 0, What::delay, span});
}

void Recorder::host_waited(Span span) {
  if (!idle_) note({host_timeline, 0, What::wait, span});
}

void Recorder::found(const Finding& finding, Timeline on, Nanoseconds at) {
  if (idle_) return;
  const std::lock_guard lock(mutex_);
  if (file_.empty()) return;
  // One operator that reads and writes the same memory is one mark.
  for (auto instant = instants_.rbegin(); instant != instants_.rend() && !instant->placed; ++instant) {
    if (instant->on == on && instant->finding.kind == finding.kind &&
        instant->finding.buffer == finding.buffer &&
        instant->finding.earlier.operation == finding.earlier.operation)
      return;
  }
  instants_.push_back({finding, on, at, on == host_timeline});
}

void Recorder::mark(Nanoseconds now) {
  const std::lock_guard lock(mutex_);
  marked_ = now;
  computed_.clear();
  communicated_.clear();
  idle_ = false;
}

StepNumbers Recorder::since_mark(Nanoseconds now) {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(marked_, "since_mark of device sim: nothing was marked");
  computed_ = merged(std::move(computed_));
  communicated_ = merged(std::move(communicated_));
  const Nanoseconds communication = length(communicated_);
  StepNumbers numbers;
  numbers.duration = std::chrono::nanoseconds(now - *marked_);
  numbers.compute = std::chrono::nanoseconds(length(computed_));
  numbers.communication = std::chrono::nanoseconds(communication);
  numbers.exposed_communication =
      std::chrono::nanoseconds(communication - length_of_both(computed_, communicated_));
  return numbers;
}

void Recorder::begin_trace(std::filesystem::path file) {
  const std::scoped_lock lock(writing_, mutex_);
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
  file_ = std::move(file);
  entries_.clear();
  instants_.clear();
  written_ = {};
  idle_ = false;
}

void Recorder::end_trace() {
  write_trace();
  const std::lock_guard lock(mutex_);
  file_.clear();
  entries_.clear();
  instants_.clear();
  idle_ = !marked_;
}

void Recorder::write_trace() {
  const std::lock_guard writing(writing_);
  std::filesystem::path file;
  std::vector<Entry> fresh;
  std::vector<Instant> instants;
  {
    const std::lock_guard lock(mutex_);
    if (file_.empty()) return;
    file = file_;
    fresh.assign(entries_.begin() + static_cast<std::ptrdiff_t>(written_.entries), entries_.end());
    written_.entries = entries_.size();
    instants = instants_;
  }
  const std::string rank = std::to_string(rank_of_process());
  const Checker& checker = Checker::instance();
  auto event = [&](const char* phase, Timeline on, const std::string& name) {
    written_.lanes.insert(on);
    return std::string(",\n{\"ph\":\"") + phase + "\",\"pid\":" + rank + ",\"tid\":" + std::to_string(on) +
           ",\"name\":" + quoted(name);
  };
  static constexpr std::array categories = {"compute", "copy", "collective", "delay", "wait"};
  for (const Entry& entry : fresh) {
    const std::string what = categories.at(static_cast<std::size_t>(entry.what));
    const bool named = entry.what != What::delay && entry.what != What::wait;
    const auto [operation, scope] = named ? checker.named(entry.operation) : std::pair(what, std::string());
    written_.text += event("X", entry.on, operation) + ",\"cat\":\"" + what +
                     "\",\"ts\":" + in_microseconds(entry.span.begin) +
                     ",\"dur\":" + in_microseconds(entry.span.end - entry.span.begin);
    if (!scope.empty()) written_.text += ",\"args\":{\"scope\":" + quoted(scope) + "}";
    written_.text += "}";
  }
  std::string end;  // what may change
  for (const Instant& instant : instants) {
    const Finding& finding = instant.finding;
    end += event("i", instant.on, finding_code(finding.kind)) + R"(,"cat":"finding","s":"t","ts":)" +
           in_microseconds(instant.at) + ",\"args\":{\"text\":" + quoted(describe(finding)) + "}}";
  }
  const std::vector<std::string> names = checker.timelines();
  for (const Timeline lane : std::set(written_.lanes)) {
    end += event("M", lane, "thread_name") + ",\"args\":{\"name\":" + quoted(names.at(lane)) + "}}";
    end += event("M", lane, "thread_sort_index") + ",\"args\":{\"sort_index\":" + std::to_string(lane) + "}}";
  }
  write_whole(file, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"machine\":" + quoted(machine()) +
                        "},\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":" + rank +
                        R"(,"name":"process_name","args":{"name":"rank )" + rank + "\"}}" + written_.text +
                        end + "\n]}\n");
}

}  // namespace fsdp_cts::sim
