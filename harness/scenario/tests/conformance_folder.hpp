// A conformance folder made for one test: scenario and model files from text.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "harness/scenario/case.hpp"
#include "harness/scenario/catalogue/load.hpp"
#include "harness/scenario/read/mistakes.hpp"

namespace fsdp_cts {

class ConformanceFolder {
 public:
  ConformanceFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "conformance-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~ConformanceFolder() { std::filesystem::remove_all(path_); }
  ConformanceFolder(const ConformanceFolder&) = delete;
  ConformanceFolder& operator=(const ConformanceFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
  }
  void scenario(const std::string& text) const { write("scenarios/one.yaml", text); }
  void model(const std::string& id, const std::string& text) const { write("models/" + id + ".yaml", text); }

  std::vector<Case> load() const { return load_cases(path_); }

  // What load_cases complains about, one mistake per line, file names relative to the folder; "" when it does
  // not.
  std::string mistakes() const {
    try {
      load();
      return "";
    } catch (const ScenarioError& error) {
      std::string text = error.what();
      const std::string prefix = path_.string() + "/";
      for (std::size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix))
        text.erase(at, prefix.size());
      return text;
    }
  }

 private:
  std::filesystem::path path_;
};

// A complete scenario of 34 lines; tests replace a line to see what is said about it.
inline const char* const sound_scenario = R"(id: F2MP/Class/test_method
source: {seed: "000", file: upstream.py, lines: "1-2"}
clauses: [FS-MP-1]
why: A reason.
axes:
  flag: [true, false]
worlds: [2]
lane: tolerance
let:
  dim: 4
models:
  model:
    type: Sequential
    children:
      - {type: Linear, in: "${dim}", out: 4}
      - {type: ReLU}
data:
  seed: 42
  inputs:
    x: {shape: [2, "${dim}"], per_rank: true}
plans:
  model:
    api: fully_shard
    units:
      - {modules: ["0"], reshard_after_forward: "${flag}"}
      - {modules: [""]}
program:
  - build: model
  - shard: model
  - forward: x
  - loss: sum
  - observe: [loss]
expect:
  - equal: {what: [loss]}
)";

// `sound_scenario` with line `number` (from 1) replaced by `text`, which may be several lines or none.
inline std::string with_line(int number, const std::string& text) {
  std::string result, source = sound_scenario;
  int line = 1;
  for (std::size_t at = 0; at < source.size(); ++line) {
    const std::size_t end = source.find('\n', at);
    result += line == number ? (text.empty() ? "" : text + "\n") : source.substr(at, end - at + 1);
    at = end + 1;
  }
  return result;
}

// The first case of a scenario text.
inline Case first_case(const std::string& text) {
  const ConformanceFolder folder;
  folder.scenario(text);
  return folder.load().front();
}

}  // namespace fsdp_cts
