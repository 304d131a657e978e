// Exceptions as the protocol reports them: by the name of Python's class.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>

namespace fsdp_cts::sdk {

struct ErrorReport {
  std::string type;     // "ValueError", "RuntimeError", "AssertionError", …
  std::string message;  // without a C++ backtrace
  std::string phase;    // empty: the phase of the verb
};

// Base for a testee's own errors, and a mixin for a library's: anything caught that also is a TypedError is
// reported by it.
class TypedError {
 public:
  virtual ~TypedError() = default;
  virtual ErrorReport report() const = 0;
};

class Error : public std::runtime_error, public TypedError {
 public:
  Error(std::string type, const std::string& message, std::string phase = {});
  ErrorReport report() const override { return {type_, what(), phase_}; }

 private:
  std::string type_, phase_;
};

// c10::ValueError, IndexError, TypeError, NotImplementedError keep their names, other c10::Error is
// RuntimeError; std::invalid_argument and domain_error are ValueError, out_of_range is IndexError, other
// logic_error is AssertionError, everything else RuntimeError.
ErrorReport describe_error(std::exception_ptr error);

// What a frame can carry of the message of an error or a warning: U+FFFD where it quotes bytes that are no UTF-8, and
// cut where it is longer than the protocol lets pass. Any other would end the rank in place of its attempt.
std::string sendable(std::string_view message);

}  // namespace fsdp_cts::sdk
