#include "harness/suite/machine_facts.hpp"

#include <sys/utsname.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <thread>

namespace fsdp_cts {
namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

}  // namespace

Json machine_facts(const Machine& machine) {
  utsname system{};
  uname(&system);
  const double memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  return {{"system", std::string(system.sysname) + " " + system.release + " " + system.machine},
          {"cpu", cpu_model()},
          {"cores", std::thread::hardware_concurrency()},
          {"memory_gib", std::lround(memory / (1 << 30))},
          {"gpus", machine.gpus},
          {"cuda", machine.cuda},
          {"simulated", machine.simulated},
          {"nccl", machine.nccl},
          {"compiler", machine.compiler}};
}

}  // namespace fsdp_cts
