#include "fsdp/comm/rendezvous.hpp"

#include <cstdlib>

#include "fsdp/errors.hpp"

namespace fsdp {
namespace {

std::string required_variable(const char* name) {
  const char* value = std::getenv(name);
  if (!value) throw InvalidArgument(std::string("environment variable ") + name + " expected, but not set");
  return value;
}

}  // namespace

Rendezvous rendezvous_from_environment(const std::string& file_store) {
  Rendezvous rendezvous;
  rendezvous.rank = std::stoll(required_variable("RANK"));
  rendezvous.world_size = std::stoll(required_variable("WORLD_SIZE"));
  rendezvous.file_store = file_store;
  if (file_store.empty()) {
    rendezvous.host = required_variable("MASTER_ADDR");
    rendezvous.port = static_cast<uint16_t>(std::stoul(required_variable("MASTER_PORT")));
  }
  if (const char* attempt = std::getenv("TORCHELASTIC_RESTART_COUNT"))
    rendezvous.store_prefix = std::string("/worker/attempt_") + attempt;
  return rendezvous;
}

}  // namespace fsdp
