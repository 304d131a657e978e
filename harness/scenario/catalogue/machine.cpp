#include "harness/scenario/catalogue/machine.hpp"

#include <cctype>
#include <cstdlib>
#include <sstream>

namespace fsdp_cts {
namespace {

bool in_path(const char* program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  std::error_code ignored;
  for (std::string folder; std::getline(folders, folder, ':');)
    if (std::filesystem::exists(std::filesystem::path(folder) / program, ignored)) return true;
  return false;
}

int count_gpus() {
  int count = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", ignored)) {
    const std::string name = entry.path().filename().string();
    // /dev/nvidia0, not /dev/nvidiactl
    if (name.starts_with("nvidia") && name.size() > 6 && std::isdigit(static_cast<unsigned char>(name[6])))
      ++count;
  }
  return count;
}

}  // namespace

Machine this_machine() {
  const int gpus = count_gpus();
  // NCCL comes with the tensor library of the implementation under test; without a GPU it cannot be used.
  return {gpus, gpus > 0, false, gpus > 0, in_path("c++") || in_path("g++") || in_path("clang++")};
}

std::string too_few_gpus(const Case& a_case, const Machine& machine) {
  std::string reason = "needs " + std::to_string(a_case.world) + " GPUs, one per rank; this machine has " +
                       std::to_string(machine.gpus);
  if (machine.gpus > 0) reason += " (with --device cuda --backend shm ranks share one)";
  return reason;
}

std::optional<std::string> why_not_runnable(const Case& a_case, const Machine& machine) {
  if (a_case.skip_reason) return "upstream returns early: " + *a_case.skip_reason;
  for (const std::string& need : a_case.requires_) {
    if (need == "gpu" && machine.gpus < a_case.world) return too_few_gpus(a_case, machine);
    if (need == "cuda" && !machine.cuda) return "is about kernels or messages that are CUDA's alone";
    if (need == "sim" && !machine.simulated) return "is about virtual time, which only --device sim has";
    if (need == "nccl" && !machine.nccl) return "needs NCCL, and a GPU for each rank";
    if (need == "compiler" && !machine.compiler) return "needs a C++ compiler in PATH";
  }
  return std::nullopt;
}

}  // namespace fsdp_cts
