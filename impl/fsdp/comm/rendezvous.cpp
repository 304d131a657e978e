#include "fsdp/comm/rendezvous.hpp"

#include <charconv>
#include <cstdlib>
#include <limits>

#include "fsdp/errors.hpp"

namespace fsdp {
namespace {

std::string required_variable(const char* name) {
  const char* value = std::getenv(name);
  if (!value) throw InvalidArgument(std::string("environment variable ") + name + " expected, but not set");
  return value;
}

int64_t number_in(const char* name, int64_t least, int64_t most, const std::string& range) {
  const auto value = required_variable(name);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < least || number > most)
    throw InvalidArgument(std::string("environment variable ") + name + " is '" + value +
                          "', which is not a whole number " + range);
  return number;
}

}  // namespace

Rendezvous rendezvous_from_environment(const std::string& file_store) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();  // c10d counts ranks in int
  Rendezvous rendezvous;
  rendezvous.world_size = number_in("WORLD_SIZE", 1, kMost, "of at least 1");
  rendezvous.rank = number_in("RANK", 0, rendezvous.world_size - 1,
                              "from 0 to WORLD_SIZE - 1 = " + std::to_string(rendezvous.world_size - 1));
  rendezvous.file_store = file_store;
  if (file_store.empty()) {
    rendezvous.host = required_variable("MASTER_ADDR");
    rendezvous.port = static_cast<uint16_t>(number_in("MASTER_PORT", 1, 65535, "from 1 to 65535"));
    const char* served = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
    rendezvous.served_elsewhere = served && std::string(served) == "True";
  }
  if (std::getenv("TORCHELASTIC_RESTART_COUNT"))
    rendezvous.store_prefix = "/worker/attempt_" + std::to_string(number_in("TORCHELASTIC_RESTART_COUNT", 0,
                                                                            kMost, "of at least 0"));
  return rendezvous;
}

}  // namespace fsdp
