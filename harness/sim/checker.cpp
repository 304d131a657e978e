#include "harness/sim/checker.hpp"

#include <algorithm>
#include <utility>

#include "harness/sim/virtual_time.hpp"

namespace fsdp_cts::sim {
namespace {

bool overlap(Extent a, Extent b) {
  return a.begin < b.end && b.begin < a.end;
}
bool contains(Extent outer, Extent inner) {
  return outer.begin <= inner.begin && inner.end <= outer.end;
}

std::string quoted(const FindingSide& side) {
  std::string text = "'" + side.operation + "'";
  if (!side.scope.empty()) text += " (in " + side.scope + ")";
  return text;
}

std::string missing_wait(FindingKind kind, const FindingSide& earlier, const FindingSide& later) {
  if (kind == FindingKind::use_after_free)
    return "before the memory is freed: the stream it was allocated on waits for " + earlier.timeline +
           " behind '" + earlier.operation + "'; or record_stream(" + earlier.timeline + ")";
  if (later.timeline == "host")
    return "before '" + later.operation + "' the host synchronizes with " + earlier.timeline +
           ", or with an event recorded there behind '" + earlier.operation + "'";
  return later.timeline + " waits, before '" + later.operation + "', for an event recorded on " +
         earlier.timeline + " behind '" + earlier.operation + "'";
}

}  // namespace

std::uint64_t Clock::advance(Timeline timeline) {
  if (timeline >= at_.size()) at_.resize(timeline + 1);
  return ++at_[timeline];
}

void Clock::join(const Clock& other) {
  if (at_.size() < other.at_.size()) at_.resize(other.at_.size());
  for (std::size_t i = 0; i < other.at_.size(); ++i) at_[i] = std::max(at_[i], other.at_[i]);
  time = std::max(time, other.time);
}

Checker& Checker::instance() {
  static auto* const checker = new Checker;  // memory is freed until the very end of a process
  return *checker;
}

Checker::Checker() : clocks_(1), names_{"host"}, operations_(1) {}

Timeline Checker::add_stream(std::string name) {
  const std::lock_guard lock(mutex_);
  clocks_.emplace_back();
  names_.push_back(std::move(name));
  return static_cast<Timeline>(clocks_.size() - 1);
}

void Checker::name_stream(Timeline timeline, std::string name) {
  const std::lock_guard lock(mutex_);
  names_.at(timeline) = std::move(name);
}

void Checker::name(Allocation& allocation, std::string name) {
  const std::lock_guard lock(mutex_);
  allocation.name = std::move(name);
}

std::uint32_t Checker::number_of(std::string_view operation, std::string_view scope) {
  std::string key(operation);
  key.append(1, '\0').append(scope);
  const auto [at, fresh] =
      operation_numbers_.try_emplace(std::move(key), static_cast<std::uint32_t>(operations_.size()));
  if (fresh) operations_.push_back({std::string(operation), std::string(scope)});
  return at->second;
}

Checker::Step Checker::step(Timeline on, std::string_view operation, std::string_view scope) {
  Step step;
  step.on_ = on;
  if (suspended()) return step;
  const std::lock_guard lock(mutex_);
  if (on != host_timeline) clocks_[on].join(clocks_[host_timeline]);
  step.epoch_ = clocks_[on].advance(on);
  step.operation_ = number_of(operation, scope);
  step.noted_ = true;
  return step;
}

Checker::Step Checker::launch(Timeline stream, std::string_view operation, std::string_view scope) {
  ++launches_;
  return step(stream, operation, scope);
}

Checker::Step Checker::on_host(std::string_view operation, std::string_view scope) {
  return step(host_timeline, operation, scope);
}

void Checker::Step::access(Allocation& allocation, Extent bytes, bool write) const {
  if (noted_ && bytes.begin < bytes.end) instance().access(*this, allocation, bytes, write);
}

void Checker::access(const Step& step, Allocation& allocation, Extent bytes, bool write) {
  const std::lock_guard lock(mutex_);
  const Access now{step.on_, step.epoch_, step.operation_, write, bytes};
  // Of this step: what was launched after it knows more, but that is not asked here.
  const Clock& clock = clocks_[step.on_];
  for (const Access& before : allocation.accesses) {
    if (!(before.write || write) || !overlap(before.bytes, bytes)) continue;
    if (clock.knows(before.on, before.epoch)) continue;
    const bool unfinished = step.on_ == host_timeline && !write;
    conflict(unfinished ? FindingKind::host_read_unfinished : FindingKind::stream_race, before, now,
             describe(allocation), "", allocation.bytes);
  }
  if (write) {
    for (const FormerUse& former : allocation.former) {
      if (!clock.knows(former.access.on, former.access.epoch))
        conflict(FindingKind::use_after_free, former.access, now, describe(allocation), former.buffer,
                 allocation.bytes);
    }
    // Whoever comes after this write comes after what the write has been held against.
    if (contains(bytes, {0, allocation.bytes})) allocation.former.clear();
    if (allocation.first_write == 0) allocation.first_write = step.operation_;
  }
  // What knows this access knows these.
  std::erase_if(allocation.accesses, [&](const Access& before) {
    return (write || !before.write) && contains(bytes, before.bytes) && clock.knows(before.on, before.epoch);
  });
  allocation.accesses.push_back(now);
}

Clock Checker::record(Timeline stream) {
  const std::lock_guard lock(mutex_);
  Clock event = clocks_[stream];
  event.join(clocks_[host_timeline]);
  return event;
}

void Checker::wait(Timeline stream, const Clock& event) {
  const std::lock_guard lock(mutex_);
  meet(stream, event);
}

void Checker::meet(Timeline timeline, const Clock& other) {
  Clock& clock = clocks_[timeline];
  const Nanoseconds before = clock.time;
  clock.join(other);
  if (suspended())
    clock.time = before;
  else if (timeline == host_timeline && clock.time > before)
    Recorder::instance().host_waited({before, clock.time});
}

Nanoseconds Checker::ready(Timeline stream, Nanoseconds on_host) {
  const std::lock_guard lock(mutex_);
  return std::max(clocks_[stream].time, clocks_[host_timeline].time + on_host);
}

Span Checker::spend(Timeline stream, Nanoseconds on_host, Nanoseconds on_stream, Nanoseconds earliest) {
  const std::lock_guard lock(mutex_);
  Nanoseconds& host = clocks_[host_timeline].time;
  host += on_host;
  const Nanoseconds begin = std::max({clocks_[stream].time, host, earliest});
  return {begin, clocks_[stream].time = begin + on_stream};
}

Nanoseconds Checker::host_catches_up() {
  const std::lock_guard lock(mutex_);
  Nanoseconds& host = clocks_[host_timeline].time;
  for (const Clock& clock : clocks_) host = std::max(host, clock.time);
  return host;
}

void Checker::host_waits(const Clock& event, std::string_view what, std::string_view scope) {
  const std::lock_guard lock(mutex_);
  host_meets(event, what, scope);
}

void Checker::host_waits_for(Timeline stream, std::string_view what, std::string_view scope) {
  const Clock event = record(stream);
  host_waits(event, what, scope);
}

void Checker::host_waits_for(const std::vector<Timeline>& streams, std::string_view what,
                             std::string_view scope) {
  const std::lock_guard lock(mutex_);
  Clock all;
  for (const Timeline stream : streams) all.join(clocks_[stream]);
  host_meets(all, what, scope);
}

// What the host has seen come to its end it need not wait for.
void Checker::host_meets(const Clock& event, std::string_view what, std::string_view scope) {
  if (!suspended() && !host_has_seen(event)) {
    const auto same = std::find_if(host_waits_.begin(), host_waits_.end(), [&](const HostWait& wait) {
      return wait.operation == what && wait.scope == scope;
    });
    if (same != host_waits_.end())
      ++same->times;
    else
      host_waits_.push_back({std::string(what), std::string(scope), 1});
  }
  meet(host_timeline, event);
}

bool Checker::host_has_seen(const Clock& event) const {
  for (Timeline timeline = 0; timeline < clocks_.size(); ++timeline) {
    if (!clocks_[host_timeline].knows(timeline, event.of(timeline))) return false;
  }
  return true;
}

bool Checker::host_knows(const Clock& event) {
  const std::lock_guard lock(mutex_);
  return host_has_seen(event);
}

std::vector<HostWait> Checker::drain_host_waits() {
  const std::lock_guard lock(mutex_);
  return std::exchange(host_waits_, {});
}

void Checker::allocated(Allocation& allocation) {
  const std::lock_guard lock(mutex_);
  allocation.number = ++allocations_;
  if (allocation.on_host || suspended()) return;
  const auto pool =
      pools_.find({allocation.device, allocation.pool, allocation.bytes <= largest_small_allocation});
  if (pool == pools_.end()) return;
  std::erase_if(pool->second, [&](const FormerUse& former) {
    return clocks_[host_timeline].knows(former.access.on, former.access.epoch);
  });
  allocation.former = pool->second;
}

Clock Checker::freed(Allocation& allocation) {
  const std::lock_guard lock(mutex_);
  Clock held;
  if (allocation.on_host) return held;  // PyTorch's allocator of pinned memory waits for copies by itself
  for (const Timeline recorded : allocation.recorded) held.join(clocks_[recorded]);
  auto& pool = pools_[{allocation.device, allocation.pool, allocation.bytes <= largest_small_allocation}];
  for (const Access& access : allocation.accesses) {
    const bool over = clocks_[host_timeline].knows(access.on, access.epoch);
    if (over || held.knows(access.on, access.epoch)) continue;
    // Of one timeline the last is enough: whoever knows it knows the others.
    const auto same = std::find_if(pool.begin(), pool.end(),
                                   [&](const FormerUse& former) { return former.access.on == access.on; });
    if (same == pool.end())
      pool.push_back({access, describe(allocation)});
    else if (same->access.epoch < access.epoch)
      *same = {access, describe(allocation)};
  }
  return held;
}

FindingSide Checker::side(const Access& access) const {
  const Operation& operation = operations_[access.operation];
  return {operation.name, operation.scope, names_[access.on], access.write};
}

std::string Checker::describe(const Allocation& allocation) const {
  if (!allocation.name.empty()) return allocation.name;
  const std::string kind = allocation.on_host ? "pinned memory" : "buffer";
  if (allocation.first_write == 0) return "a " + kind + " not written before";
  const Operation& operation = operations_[allocation.first_write];
  return "the " + kind + " first written by '" + operation.name + "'" +
         (operation.scope.empty() ? "" : " (in " + operation.scope + ")");
}

void Checker::conflict(FindingKind kind, const Access& earlier, const Access& later, std::string buffer,
                       const std::string& freed, std::size_t bytes) {
  Finding finding;
  finding.kind = kind;
  finding.earlier = side(earlier);
  finding.later = side(later);
  finding.buffer =
      freed.empty() ? std::move(buffer) : freed + ", freed and, it may be, handed out again as " + buffer;
  finding.bytes = bytes;
  finding.missing = missing_wait(kind, finding.earlier, finding.later);
  Recorder::instance().found(finding, later.on, clocks_[later.on].time);
  std::string key = std::string(finding_code(kind)) + finding.buffer + quoted(finding.earlier) +
                    finding.earlier.timeline + quoted(finding.later) + finding.later.timeline;
  const auto [at, fresh] = findings_.try_emplace(key, std::move(finding));
  if (fresh)
    order_.push_back(std::move(key));
  else
    ++at->second.times;
}

std::vector<Finding> Checker::drain() {
  const std::lock_guard lock(mutex_);
  std::vector<Finding> drained;
  for (const std::string& key : order_) drained.push_back(std::move(findings_.at(key)));
  findings_.clear();
  order_.clear();
  return drained;
}

void Checker::restart_time() {
  const std::lock_guard lock(mutex_);
  for (Clock& clock : clocks_) clock.time = 0;
}

std::vector<std::string> Checker::timelines() const {
  const std::lock_guard lock(mutex_);
  return names_;
}

std::pair<std::string, std::string> Checker::named(std::uint32_t operation) const {
  const std::lock_guard lock(mutex_);
  return {operations_.at(operation).name, operations_.at(operation).scope};
}

const char* finding_code(FindingKind kind) {
  switch (kind) {
    case FindingKind::use_after_free:
      return "use_after_free";
    case FindingKind::host_read_unfinished:
      return "host_read_unfinished";
    default:
      return "stream_race";
  }
}

std::string describe(const Finding& finding) {
  auto touched = [](const FindingSide& side) {
    return quoted(side) + " on " + side.timeline + (side.write ? " writes" : " reads");
  };
  return finding.buffer + " (" + std::to_string(finding.bytes) + " bytes): " + touched(finding.earlier) +
         ", then " + touched(finding.later) + ", and nothing orders the two; missing: " + finding.missing;
}

std::vector<Finding> drain_findings() {
  return Checker::instance().drain();
}
std::vector<HostWait> drain_host_waits() {
  return Checker::instance().drain_host_waits();
}
std::uint64_t launches() {
  return Checker::instance().launches();
}
Unobserved::Unobserved() {
  Checker::instance().suspend();
}
Unobserved::~Unobserved() {
  Checker::instance().resume();
}

}  // namespace fsdp_cts::sim
