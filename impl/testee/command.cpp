#include "impl/testee/command.hpp"

#include <CLI/CLI.hpp>
#include <iostream>

#include "harness/protocol/fork_server.hpp"
#include "harness/sdk/cpp/serve.hpp"
#include "impl/testee/testee.hpp"

namespace fsdp_cts::testee {
namespace {

int serve(int argc, char** argv, const std::function<std::string()>& variant,
          std::function<void(const std::string&)> case_begins) {
  CLI::App app{"One rank of the C++ FSDP library, driven by fsdp-cts over its control socket."};
  Settings settings;
  settings.case_begins = std::move(case_begins);
  std::string device = "cpu", backend;
  app.add_option("--backend", backend,
                 "of the process group; gloo (default) or shm on cpu and sim, nccl on cuda")
      ->check(CLI::IsMember({"gloo", "shm", "nccl"}));
  app.add_option("--device", device, "where models and data live")
      ->check(CLI::IsMember({"cpu", "cuda", "sim"}))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    settings.transport = transport_for(device, backend);
    if (variant) settings.name += " " + variant();
  } catch (const std::exception& refusal) {
    std::cerr << "fsdp_testee: " << refusal.what() << '\n';
    return 2;
  }
  Testee operations(settings);
  return sdk::serve(operations);
}

}  // namespace

void run(int argc, char** argv, const std::function<std::string()>& variant,
         std::function<void(const std::string&)> case_begins) {
  serve_forks();
  sdk::leave(serve(argc, argv, variant, std::move(case_begins)));
}

}  // namespace fsdp_cts::testee
