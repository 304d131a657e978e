#include "harness/runner/scratch.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace fsdp_cts {
namespace {

constexpr std::uintmax_t min_free_bytes = std::uintmax_t{256} << 20;
// What a group adds to the folder's path to name a socket: "/g123456/1234.sock".
constexpr std::size_t socket_suffix = 20;

std::filesystem::path default_root() {
  struct statvfs memory {};
  if (::access("/dev/shm", W_OK | X_OK) == 0 && ::statvfs("/dev/shm", &memory) == 0 &&
      std::uintmax_t{memory.f_bavail} * memory.f_frsize >= min_free_bytes) {
    return "/dev/shm";
  }
  const char* temporary = std::getenv("TMPDIR");
  return temporary != nullptr && *temporary != '\0' ? temporary : "/tmp";
}

// Locked as long as the runner or its guardian lives: what nobody holds is left over from a runner that was
// killed together with its guardian.
constexpr const char* lock_name = "owner.lock";

void remove_left_over(const std::filesystem::path& root) {
  std::error_code ignored;
  for (const auto& folder : std::filesystem::directory_iterator(root, ignored)) {
    struct stat info {};
    if (folder.path().filename().string().rfind("fsdp-cts-", 0) != 0) continue;
    if (::lstat(folder.path().c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != ::getuid())
      continue;
    const int lock = ::open((folder.path() / lock_name).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (lock < 0) continue;  // being made, or not ours
    if (::flock(lock, LOCK_EX | LOCK_NB) == 0) std::filesystem::remove_all(folder.path(), ignored);
    ::close(lock);
  }
}

}  // namespace

Scratch::Scratch(const std::filesystem::path& root) {
  const std::filesystem::path parent = root.empty() ? default_root() : root;
  std::string pattern = parent / "fsdp-cts-XXXXXX";
  if (pattern.size() + socket_suffix >= sizeof(sockaddr_un::sun_path)) {
    throw ScratchError("the scratch folder " + pattern +
                       " is too long for the path of a Unix socket; choose a shorter one (TMPDIR)");
  }
  if (::mkdtemp(pattern.data()) == nullptr) {
    throw ScratchError("cannot make a scratch folder " + pattern + ": " + std::strerror(errno) +
                       ". Choose a folder that can be written (TMPDIR)");
  }
  folder_ = pattern;
  // Locked before it has its name, so that nobody finds it free.
  const std::filesystem::path unnamed = folder_ / "owner.lock.new";
  lock_ = ::open(unnamed.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_ < 0 || ::flock(lock_, LOCK_EX | LOCK_NB) != 0 ||
      ::rename(unnamed.c_str(), (folder_ / lock_name).c_str()) != 0) {
    throw ScratchError("cannot lock " + (folder_ / lock_name).string() + ": " + std::strerror(errno));
  }
  remove_left_over(parent);
}

Scratch::~Scratch() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
  ::close(lock_);
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directory(folder, error);
  if (error) throw ScratchError("cannot make the folder " + folder.string() + ": " + error.message());
}

}  // namespace fsdp_cts
