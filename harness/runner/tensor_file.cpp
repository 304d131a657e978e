#include "harness/runner/tensor_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "harness/protocol/messages.hpp"
#include "harness/protocol/safetensors.hpp"

namespace fsdp_cts {
namespace {

// A descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { reset(-1); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  void reset(int number) {
    if (number_ >= 0) ::close(number_);
    number_ = number;
  }
  operator int() const { return number_; }

 private:
  int number_;
};

}  // namespace

TensorMap take_tensor_file(const std::filesystem::path& folder, const std::string& name,
                           std::uintmax_t max_bytes) {
  const auto refuse = [&](const char* code, const std::string& what) {
    throw MessageError(code, "the tensor file \"" + name + "\" " + what);
  };
  const std::filesystem::path path(name);
  const bool below = path.is_relative() && path.has_filename() &&
                     std::none_of(path.begin(), path.end(), [](const auto& part) { return part == ".."; });
  if (!below) refuse("file_outside_scratch", "is not a path below the case's scratch folder");
  const auto refuse_failure = [&] {
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
      throw NoDescriptor("the runner cannot open its tensor file \"" + name + "\": " + std::strerror(errno));
    if (errno == ENOENT) refuse("missing_file", "does not exist in the case's scratch folder");
    if (errno == ELOOP || errno == ENOTDIR || errno == ENXIO)
      refuse("not_a_file", "in the case's scratch folder is a link, lies behind one, or is no file");
    refuse("unreadable_file", std::string("cannot be opened: ") + std::strerror(errno));
  };
  Descriptor directory(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (const auto& part : path.parent_path()) {
    if (directory < 0) refuse_failure();
    directory.reset(::openat(directory, part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  }
  if (directory < 0) refuse_failure();
  const std::string last = path.filename();
  // Not blocking: it may be a pipe that nobody writes.
  const Descriptor file(::openat(directory, last.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file < 0) refuse_failure();
  struct stat facts {};
  if (::fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode)) refuse("not_a_file", "is not a regular file");
  if (const auto size = static_cast<std::uintmax_t>(facts.st_size); size > max_bytes)
    refuse("oversize_file", "has " + std::to_string(size) + " bytes; the case may still hand over " +
                                std::to_string(max_bytes));
  try {
    TensorMap tensors = read_safetensors(file, folder / path);
    ::unlinkat(directory, last.c_str(), 0);
    return tensors;
  } catch (const SafetensorsError& e) {
    throw MessageError(e.code, e.what());
  } catch (const std::system_error& e) {
    throw MessageError("unreadable_file", e.what());
  }
}

}  // namespace fsdp_cts
