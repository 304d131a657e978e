// fsdp_testee: the C++ FSDP library under the suite, or a faulty variant of it. The runner starts one
// process per rank.
#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "harness/sdk/cpp/serve.hpp"
#include "impl/mutants/mutant.hpp"
#include "impl/testee/testee.hpp"

namespace {

nlohmann::ordered_json mutants_as_json() {
  auto list = nlohmann::ordered_json::array();
  for (const fsdp_cts::mutants::Mutant& mutant : fsdp_cts::mutants::all_mutants()) {
    list.push_back({{"id", mutant.id},
                    {"group", group_name(mutant.group)},
                    {"sentence", mutant.sentence},
                    {"verdict", mutant.verdict},
                    {"code", mutant.code},
                    {"difference", mutant.difference},
                    {"cases", mutant.cases}});
  }
  return list;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"One rank of the C++ FSDP library, driven by fsdp-cts over its control socket."};
  fsdp_cts::testee::Settings settings;
  std::string mutant;
  bool list_mutants = false;
  std::string device = "cpu", backend;
  app.add_option("--backend", backend, "of the process group; gloo (default) or shm on cpu, nccl on cuda")
      ->check(CLI::IsMember({"gloo", "shm", "nccl"}));
  app.add_option("--device", device, "where models and data live")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  app.add_option("--mutant", mutant, "act as this faulty implementation");
  app.add_flag("--list-mutants", list_mutants,
               "print the faulty implementations and what they must be convicted of, as JSON");
  CLI11_PARSE(app, argc, argv);
  if (list_mutants) {
    std::cout << mutants_as_json().dump(1) << '\n';
    return 0;
  }
  try {
    settings.transport = fsdp_cts::testee::transport_for(device, backend);
    if (!mutant.empty()) {
      const fsdp_cts::mutants::Mutant& faulty = fsdp_cts::mutants::mutant_named(mutant);
      settings.seams = faulty.seams;
      settings.flat_seams = faulty.flat_seams;
      settings.foreach_mul = faulty.foreach_mul;
      settings.name += " mutant:" + mutant;
    }
  } catch (const std::exception& refusal) {
    std::cerr << "fsdp_testee: " << refusal.what() << '\n';
    return 2;
  }
  fsdp_cts::testee::Testee operations(settings);
  return fsdp_cts::sdk::serve(operations);
}
