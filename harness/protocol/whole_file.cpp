#include "harness/protocol/whole_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <system_error>

namespace fsdp_cts {
namespace {

// A name that no other writer of this folder uses; removed again unless the file takes its final name.
struct UnfinishedFile {
  explicit UnfinishedFile(const std::filesystem::path& final_path) : final_path(final_path) {
    static std::atomic<unsigned> count{0};
    path = final_path;
    path += "." + std::to_string(::getpid()) + "-" + std::to_string(count++) + ".part";
    descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0) fail();
  }
  ~UnfinishedFile() {
    if (descriptor >= 0) ::close(descriptor);
    if (!finished) ::unlink(path.c_str());
  }
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t done = ::write(descriptor, bytes.data(), bytes.size());
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) fail();
      bytes.remove_prefix(static_cast<std::size_t>(done));
    }
  }

  void finish() {
    const int result = ::close(descriptor);
    descriptor = -1;
    if (result != 0 || ::rename(path.c_str(), final_path.c_str()) != 0) fail();
    finished = true;
  }

  [[noreturn]] void fail() const {
    throw std::system_error(errno, std::generic_category(), "cannot write " + final_path.string());
  }

  const std::filesystem::path final_path;
  std::filesystem::path path;
  int descriptor = -1;
  bool finished = false;
};

}  // namespace

void write_whole_file(const std::filesystem::path& file, std::string_view bytes) {
  UnfinishedFile unfinished(file);
  unfinished.write(bytes);
  unfinished.finish();
}

void write_whole_file_and_folders(const std::filesystem::path& file, std::string_view bytes) {
  std::error_code ignored;  // what cannot be made shows when the file is opened, and is named there
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path(), ignored);
  write_whole_file(file, bytes);
}

}  // namespace fsdp_cts
