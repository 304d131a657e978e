// Who touches which bytes when, and whether anything orders two touches: happens-before with vector clocks.
//
// A timeline is what does one thing after the other: the host (all its threads together, since what they hand
// to each other is not seen here), or one stream. Work is launched by the host, so a launch knows all that the
// host knows; the host and other streams know of it only after a wait. Two accesses of the same bytes, one of
// which writes, are a race unless the later one's timeline knows the earlier one.
//
// Memory of a device belongs to the stream it was allocated on: freed by the host, it is handed out again to
// that stream at once, as CUDA's caching allocator does. Whether it really is handed out again depends on sizes;
// here every later allocation of the same pool counts, so that a verdict does not depend on luck.
//
// Virtual time goes with order: each timeline's clock also says how late it is there, and whoever waits for another
// is no earlier than that. All are at 0 as long as nothing takes time (`spend`).
//
// Threads: every function may be called from any thread at any time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "harness/sim/machines.hpp"
#include "harness/sim/sim.hpp"

namespace fsdp_cts::sim {

using Timeline = std::uint32_t;
inline constexpr Timeline host_timeline = 0;
// In bytes, as CUDA's caching allocator divides its pools.
inline constexpr std::size_t largest_small_allocation = std::size_t{1} << 20;

class Clock {
 public:
  std::uint64_t of(Timeline timeline) const { return timeline < at_.size() ? at_[timeline] : 0; }
  bool knows(Timeline timeline, std::uint64_t epoch) const { return of(timeline) >= epoch; }
  std::uint64_t advance(Timeline timeline);
  void join(const Clock& other);

  Nanoseconds time = 0;  // virtual

 private:
  std::vector<std::uint64_t> at_;
};

// In virtual time.
struct Span {
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
};

// Half open, in bytes from the start of an allocation.
struct Extent {
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct Access {
  Timeline on = host_timeline;
  std::uint64_t epoch = 0;
  std::uint32_t operation = 0;  // Checker's number of it
  bool write = false;
  Extent bytes;
};

// What once was in the pool that an allocation was taken from, and may still be in use.
struct FormerUse {
  Access access;
  std::string buffer;
};

// One allocation, on a device or of pinned host memory. Owned by the allocators, written by the checker alone.
struct Allocation {
  void* data = nullptr;
  std::size_t bytes = 0;
  bool on_host = false;
  int device = 0;
  Timeline pool = host_timeline;  // the stream it was allocated on
  std::uint64_t number = 0;
  std::string name;               // see name_buffer
  std::uint32_t first_write = 0;  // operation; 0: none yet
  std::set<Timeline> recorded;    // record_stream
  std::vector<Access> accesses;
  std::vector<FormerUse> former;
};

class Checker {
 public:
  static Checker& instance();  // lives as long as the process

  Timeline add_stream(std::string name);
  void name_stream(Timeline timeline, std::string name);
  void name(Allocation& allocation, std::string name);

  // What one launched operator, or one call on the host, does. Nothing is noted while checks are suspended.
  class Step {
   public:
    void reads(Allocation& allocation, Extent bytes) const { access(allocation, bytes, false); }
    void writes(Allocation& allocation, Extent bytes) const { access(allocation, bytes, true); }
    Timeline on() const { return on_; }
    std::uint32_t operation() const { return operation_; }
    bool noted() const { return noted_; }

   private:
    friend class Checker;
    void access(Allocation& allocation, Extent bytes, bool write) const;
    Timeline on_ = host_timeline;
    std::uint64_t epoch_ = 0;
    std::uint32_t operation_ = 0;
    bool noted_ = false;
  };
  // `scope`: the innermost range that the program has named around it (record_function), or "".
  Step launch(Timeline stream, std::string_view operation, std::string_view scope);
  Step on_host(std::string_view operation, std::string_view scope);

  Clock record(Timeline stream);                   // an event behind all that was launched there
  void wait(Timeline stream, const Clock& event);  // what is launched there from now on comes after the event
  // On the host and on a stream, where it begins no earlier than the host has launched it, nor than `earliest`.
  Span spend(Timeline stream, Nanoseconds on_host, Nanoseconds on_stream, Nanoseconds earliest = 0);
  Nanoseconds ready(Timeline stream, Nanoseconds on_host);  // when what is launched now would begin
  Nanoseconds host_catches_up();  // the host's clock, moved on to that of the last stream; orders nothing
  void restart_time();            // 0 everywhere

  // `what`: the call of the program that waits, as `HostWait` names it.
  void host_waits(const Clock& event, std::string_view what, std::string_view scope);
  void host_waits_for(Timeline stream, std::string_view what, std::string_view scope);
  void host_waits_for(const std::vector<Timeline>& streams, std::string_view what, std::string_view scope);
  std::vector<HostWait> drain_host_waits();
  bool host_knows(const Clock& event);

  void allocated(Allocation& allocation);
  // Answers the clock that must have passed before the memory may be handed out again; nothing recorded: an
  // empty one.
  Clock freed(Allocation& allocation);

  std::vector<Finding> drain();
  std::vector<std::string> timelines() const;                                // names
  std::pair<std::string, std::string> named(std::uint32_t operation) const;  // operation, scope
  std::uint64_t launches() const { return launches_; }

  void suspend() { ++suspended_; }
  void resume() { --suspended_; }
  bool suspended() const { return suspended_ > 0; }

 private:
  struct Operation {
    std::string name;
    std::string scope;
  };
  using Pool = std::tuple<int, Timeline, bool>;  // device, stream, small

  Checker();
  Step step(Timeline on, std::string_view operation, std::string_view scope);
  void meet(Timeline timeline, const Clock& other);
  void host_meets(const Clock& event, std::string_view what, std::string_view scope);
  bool host_has_seen(const Clock& event) const;
  std::uint32_t number_of(std::string_view operation, std::string_view scope);
  void access(const Step& step, Allocation& allocation, Extent bytes, bool write);
  void conflict(FindingKind kind, const Access& earlier, const Access& later, std::string buffer,
                const std::string& freed, std::size_t bytes);
  FindingSide side(const Access& access) const;
  std::string describe(const Allocation& allocation) const;

  mutable std::mutex mutex_;
  std::vector<Clock> clocks_;       // by timeline
  std::vector<std::string> names_;  // by timeline
  std::vector<Operation> operations_;
  std::unordered_map<std::string, std::uint32_t> operation_numbers_;
  std::map<Pool, std::vector<FormerUse>> pools_;
  std::map<std::string, Finding> findings_;  // by what makes two findings the same
  std::vector<std::string> order_;           // of the keys above
  std::vector<HostWait> host_waits_;         // in the order in which they were first seen
  std::uint64_t allocations_ = 0;
  std::atomic<std::uint64_t> launches_ = 0;
  std::atomic<int> suspended_ = 0;
};

}  // namespace fsdp_cts::sim
