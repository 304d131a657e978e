// The session's private folder: sockets, rendezvous files, data and tensor files. In memory where the machine
// allows it.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>

namespace fsdp_cts {

class ScratchError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Scratch {
 public:
  // Makes <root>/fsdp-cts-XXXXXX, readable by this user only. An empty root: /dev/shm when it has 256 MiB
  // free, else $TMPDIR, else /tmp. Throws ScratchError naming the folder and the reason; also for a root so
  // long that a Unix socket's path would not fit. Removes this user's folders there whose owner is gone.
  explicit Scratch(const std::filesystem::path& root);
  // Removes the folder with everything in it.
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
  int lock_ = -1;
};

// Creates one folder below; throws ScratchError.
void make_folder(const std::filesystem::path& folder);

}  // namespace fsdp_cts
