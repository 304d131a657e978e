#include "harness/runner/scratch.hpp"

#include <stdlib.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace fsdp_cts {
namespace {

constexpr std::uintmax_t enough = std::uintmax_t{256} << 20;
// What a group adds to the folder's path to name a socket: "/g123456/1234.sock".
constexpr std::size_t socket_suffix = 20;

std::filesystem::path default_root() {
  struct statvfs memory {};
  if (::access("/dev/shm", W_OK | X_OK) == 0 && ::statvfs("/dev/shm", &memory) == 0 &&
      std::uintmax_t{memory.f_bavail} * memory.f_frsize >= enough) {
    return "/dev/shm";
  }
  const char* temporary = std::getenv("TMPDIR");
  return temporary != nullptr && *temporary != '\0' ? temporary : "/tmp";
}

}  // namespace

Scratch::Scratch(const std::filesystem::path& root) {
  std::string pattern = (root.empty() ? default_root() : root) / "fsdp-cts-XXXXXX";
  if (pattern.size() + socket_suffix >= sizeof(sockaddr_un::sun_path)) {
    throw ScratchError("the scratch folder " + pattern +
                       " is too long for the path of a Unix socket; choose a shorter one (TMPDIR)");
  }
  if (::mkdtemp(pattern.data()) == nullptr) {
    throw ScratchError("cannot make a scratch folder " + pattern + ": " + std::strerror(errno) +
                       ". Choose a folder that can be written (TMPDIR)");
  }
  folder_ = pattern;
}

Scratch::~Scratch() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directory(folder, error);
  if (error) throw ScratchError("cannot make the folder " + folder.string() + ": " + error.message());
}

}  // namespace fsdp_cts
