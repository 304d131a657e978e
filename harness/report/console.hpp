// What a person sees while the suite runs and reads when it has: progress, then verdict counts, the slowest
// cases, and each failure with its first divergence and the command that repeats it.
#pragma once

#include <chrono>
#include <ostream>

#include "harness/report/report.hpp"

namespace fsdp_cts {

class ConsoleReporter : public Reporter {
 public:
  // `live`: the stream is a terminal; one line of progress is rewritten in place. Otherwise a plain line per
  // scenario.
  ConsoleReporter(std::ostream& out, bool live) : out_(out), live_(live) {}
  void begin(const Json& header) override;
  void add(const Json& record) override;
  void finish(const Json& footer) override;

 private:
  void progress();
  void scenario_line(const std::string& scenario);
  void failure(const Json& record, int width);

  std::ostream& out_;
  bool live_;
  Json header_;
  std::vector<Json> records_;
  std::map<std::string, int> expected_;            // cases per scenario
  std::map<std::string, std::vector<Json>> open_;  // records of scenarios not yet complete
  std::size_t total_ = 0, not_passed_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// The summary alone, also for `fsdp-cts report FILE`.
void print_summary(std::ostream& out, const Report& report);

// True for verdicts a person has to look at: neither passed nor as announced nor skipped.
bool needs_attention(const Json& record);
// The testee does not offer this and nobody announced it.
bool is_unsupported(const Json& record);

}  // namespace fsdp_cts
