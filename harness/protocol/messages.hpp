// The messages of the testee protocol (PROTOCOL.md §3-§6), judged by messages.schema.json, which is compiled
// in.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "harness/protocol/frame.hpp"

namespace fsdp_cts {

inline constexpr int protocol_version = 1;

extern const char* const messages_schema_text;

// `code`: "unknown_type", "wrong_version" (of a hello), "invalid_message".
class MessageError : public std::runtime_error {
 public:
  MessageError(std::string error_code, const std::string& what)
      : std::runtime_error(what), code(std::move(error_code)) {}
  const std::string code;
};

// Throws MessageError, with the place and what was expected there, unless the runner may receive this message
// from a testee.
void check_testee_message(const Json& message);

// Throws MessageError unless a testee may receive this message from a runner.
void check_runner_message(const Json& message);

// Every name of a tensor that the entries of a valid observation refer to.
std::vector<std::string> tensors_named_by(const Json& entries);

}  // namespace fsdp_cts
