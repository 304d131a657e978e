#include "harness/protocol/messages.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "harness/protocol/schema.hpp"

namespace fsdp_cts {
namespace {

constexpr std::array<std::string_view, 8> from_testee = {"hello",      "progress", "observation", "finding",
                                                         "device_use", "done",     "unsupported", "error"};
constexpr std::array<std::string_view, 2> from_runner = {"case", "bye"};

const Schema& schema() {
  static const Schema loaded(Json::parse(messages_schema_text));
  return loaded;
}

template <typename Types>
void check(const Json& message, const Types& allowed) {
  const auto& type = message.at("type").get_ref<const std::string&>();
  if (std::find(allowed.begin(), allowed.end(), type) == allowed.end()) {
    std::string names;
    for (const std::string_view name : allowed) names.append(names.empty() ? "" : ", ").append(name);
    throw MessageError("unknown_type", "a message has the type \"" + type + "\"; known here are " + names);
  }
  // Before the schema: another version may have other keys, and the reader should learn about the version
  // first.
  if (type == "hello" && message.contains("protocol") && message["protocol"] != protocol_version) {
    throw MessageError("wrong_version", "the testee speaks protocol version " + message["protocol"].dump() +
                                            "; this runner speaks version " +
                                            std::to_string(protocol_version));
  }
  if (const auto violation = schema().check(message, type)) {
    throw MessageError("invalid_message",
                       "a message of type \"" + type + "\" breaks the protocol " + violation->sentence());
  }
}

}  // namespace

void check_testee_message(const Json& message) {
  check(message, from_testee);
}

void check_runner_message(const Json& message) {
  check(message, from_runner);
}

std::vector<std::string> tensors_named_by(const Json& entries) {
  std::vector<std::string> names;
  for (const Json& entry : entries) {
    if (entry.contains("tensor")) names.push_back(entry["tensor"]);
    if (!entry.contains("items")) continue;
    for (const Json& item : entry["items"]) {
      for (const Json& piece : item.at("pieces")) names.push_back(piece.at("tensor"));
    }
  }
  return names;
}

}  // namespace fsdp_cts
