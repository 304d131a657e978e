// Virtual time: what an operator, a copy or a collective takes on the chosen machine, and a record of what ran when,
// for numbers and traces. The clocks are the checker's.
//
// Threads: every function may be called from any thread at any time.
#pragma once

#include <atomic>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "harness/sim/checker.hpp"

namespace fsdp_cts::sim {

// Null where no machine is chosen. Throws c10::Error as long as FSDP_SIM_MACHINE names one that is not there.
const Machine* chosen_machine();

// Begins what FSDP_SIM_TRACE asks for. Throws c10::Error where the variables of virtual time cannot be followed.
void follow_environment();

enum class Kind { compute, copy, collective };

// The work of one operator. Bytes are those that it reads and writes.
struct Cost {
  double bytes = 0;
  double operations = 0;  // floating-point; of matrix products, convolutions and attention, else 0
  int bits = 32;          // of an element of such a product
};
Nanoseconds duration_of(const Machine& machine, const Cost& cost);
Nanoseconds duration_of_copy(const Machine& machine, double bytes);  // between host and device
Nanoseconds duration_of_collective(const Machine& machine, Pattern pattern, int ranks, double bytes);

// Bytes that an operator moves for the tensor: fewer than its elements have where they share memory.
double bytes_of(const at::Tensor& tensor);

// The step takes this long, on its stream and by one launch on the host; nothing where it is not noted.
void spend(const Machine& machine, const Checker::Step& step, Kind kind, Nanoseconds duration,
           Nanoseconds earliest = 0);

class Recorder {
 public:
  static Recorder& instance();  // lives as long as the process

  void ran(Timeline on, std::uint32_t operation, Kind kind, Span span);
  void delayed(Timeline on, Span span);
  void host_waited(Span span);
  // `at`: where nothing that runs on the timeline next says it better.
  void found(const Finding& finding, Timeline on, Nanoseconds at);

  void mark(Nanoseconds now);
  StepNumbers since_mark(Nanoseconds now);  // without memory

  void begin_trace(std::filesystem::path file);
  void write_trace();
  void end_trace();

 private:
  enum class What { compute, copy, collective, delay, wait };
  struct Entry {
    Timeline on = host_timeline;
    std::uint32_t operation = 0;
    What what = What::compute;
    Span span;
  };
  struct Instant {
    Finding finding;
    Timeline on = host_timeline;
    Nanoseconds at = 0;
    bool placed = false;
  };

  Recorder();
  void note(const Entry& entry);

  std::mutex mutex_;
  std::atomic<bool> idle_ = true;  // neither measured nor traced
  std::optional<Nanoseconds> marked_;
  std::vector<Span> computed_, communicated_;  // since the mark
  std::filesystem::path file_;                 // of the trace; empty: none
  std::vector<Entry> entries_;                 // of the trace
  std::vector<Instant> instants_;

  // What the file holds already: a trace is written often, and only grows.
  struct Written {
    std::size_t entries = 0;
    std::string text;
    std::set<Timeline> lanes;
  };
  std::mutex writing_;  // before mutex_ and the checker's
  Written written_;
};

}  // namespace fsdp_cts::sim
