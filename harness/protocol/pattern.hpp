// Regular expressions over text that somebody else wrote: a testee's messages, a scenario's names. Evaluated
// by RE2, whose time is linear in the text and whose stack does not grow with it; std::regex recurses for
// every character, so that 50 kB of text end the process.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace re2 {
class RE2;
}

namespace fsdp_cts {

class Pattern {
 public:
  // RE2's syntax, which is Python's without look-around and back references. Throws std::invalid_argument
  // with the reason.
  explicit Pattern(const std::string& text);

  bool matches(std::string_view whole) const;
  bool found_in(std::string_view text) const;

 private:
  std::shared_ptr<const re2::RE2> expression_;
};

}  // namespace fsdp_cts
