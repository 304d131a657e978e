// What a rank writes to stdout and stderr: the beginning and the end are kept, whatever the length.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fsdp_cts {

class OutputCapture {
 public:
  OutputCapture(std::size_t head, std::size_t tail) : head_limit_(head), tail_limit_(tail) {}

  void append(std::string_view bytes);
  void clear();
  // UTF-8 for a report: bytes that are none are written as \xFF, and a line tells how much was left out.
  std::string text() const;
  std::uint64_t total() const { return total_; }

 private:
  std::size_t head_limit_;
  std::size_t tail_limit_;
  std::uint64_t total_ = 0;
  std::string head_;
  std::string tail_;  // up to twice tail_limit_, cut now and then: no byte is moved more than once on average
};

// Invalid UTF-8 and control characters (other than newline and tab) become \xNN.
std::string printable(std::string_view bytes);

}  // namespace fsdp_cts
