#include "harness/generate/generate.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <numeric>

#include "harness/generate/draw.hpp"
#include "harness/generate/fit.hpp"
#include "harness/generate/pytorch.hpp"
#include "harness/generate/shrink.hpp"
#include "harness/protocol/whole_file.hpp"
#include "harness/suite/pipeline.hpp"

namespace fsdp_cts::generate {
namespace {

namespace fs = std::filesystem;

constexpr int data_draws = 3;     // before another sketch is drawn for an index
constexpr int sketch_draws = 60;  // before an index is given up
constexpr int most_shrink_runs = 400;
constexpr double shrink_timeout =
    10;  // seconds for a step: nothing drawn takes long, and hangs are tried often

// A line that stays where it is on a terminal, and is not there elsewhere.
class Progress {
 public:
  void show(const std::string& text) {
    if (!terminal_) return;
    std::cerr << "\r\033[K" << text << std::flush;
  }
  ~Progress() { show(""); }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
};

std::string file_name(const Origin& origin) {
  return fmt::format("seed{}_number_{}.yaml", origin.seed, origin.index);
}

struct AllDrawn {
  std::vector<Drawn> drawn;
  int redrawn = 0;
};

AllDrawn draw_all(const GenerateOptions& options, const Testee& oracle) {
  AllDrawn result;
  SessionOptions session_options;
  session_options.jobs = options.run.jobs;
  Session session(session_options);
  Progress progress;
  const bool for_pytorch = options.run.testee.spec == "pytorch";
  std::vector<int> open(static_cast<std::size_t>(options.count));
  std::iota(open.begin(), open.end(), options.first);
  std::map<int, Drawn> fit;
  for (int attempt = 0; attempt < sketch_draws && !open.empty(); ++attempt) {
    progress.show(fmt::format("drawing: {} of {}", fit.size(), options.count));
    std::vector<Drawn> round;
    std::vector<int> left_out;
    for (const int index : open) {
      Sketch sketch = draw_sketch(options.seed, index, attempt);
      if (for_pytorch && why_not_for_pytorch(sketch))
        left_out.push_back(index);
      else
        round.push_back(written({options.seed, index}, std::move(sketch), ""));
    }
    const std::vector<std::string> unfit = fit_data(round, data_draws, oracle, session);
    open = left_out;
    for (std::size_t i = 0; i < round.size(); ++i) {
      const int index = round[i].origin.index;
      if (unfit[i].empty()) {
        fit.emplace(index, std::move(round[i]));
      } else {
        open.push_back(index);
        ++result.redrawn;
        if (std::getenv("FSDP_CTS_GENERATE_VERBOSE"))
          std::cerr << scenario_id(round[i].origin) << ": " << unfit[i] << "\n";
      }
    }
  }
  session.close();
  for (auto& [index, each] : fit) result.drawn.push_back(std::move(each));
  return result;
}

// Runs one candidate after another on ranks that stay.
class Shrinker {
 public:
  Shrinker(const GenerateOptions& options, const Suite& suite) {
    RunOptions run = options.run;
    settle(run.testee);
    PipelineOptions pipeline;
    pipeline.testee = testee_from(run.testee, suite);
    pipeline.oracle = oracle_of(suite, run.testee.device);
    pipeline.session.jobs = 1;
    Deadlines& deadlines = pipeline.session.limits.deadlines;
    const Deadlines usual;
    deadlines.verb = Deadlines::Duration(run.timeout.value_or(shrink_timeout));
    deadlines.rendezvous = deadlines.verb * (usual.rendezvous / usual.verb);
    deadlines.total = deadlines.verb * (usual.total / usual.verb);
    oracle_ = pipeline.oracle;
    pipeline.golden = suite.golden_store();
    session_.emplace(SessionOptions{});
    pipeline_.emplace(std::move(pipeline), processes_);
  }

  ~Shrinker() {
    session_->close();
    pipeline_->close();
    processes_.close();
  }

  // The smallest that fails in the same way as `record` tells.
  Drawn shrink_one(const Drawn& failing, const Json& record) {
    Drawn smallest = failing;
    int tried = 0;
    shrink(
        failing.sketch,
        [&](Sketch& candidate) {
          progress_.show(fmt::format("shrinking {}: {} tried", failing.whole().scenario, ++tried));
          std::vector<Drawn> one{written(failing.origin, candidate, "")};
          if (!fit_data(one, data_draws, oracle_, *session_).front().empty()) return false;
          candidate = one.front().sketch;
          bool same = false;
          std::vector<const Case*> cases;
          for (const Case& each : one.front().cases) cases.push_back(&each);
          pipeline_->run(cases, [&](const Case&, const Verdict& verdict, const CaseRun&) {
            same = same || (verdict_name(verdict.kind) == record.at("verdict").get<std::string>() &&
                            verdict.code == record.at("code").get<std::string>());
          });
          if (same) smallest = std::move(one.front());
          return same;
        },
        most_shrink_runs);
    return smallest;
  }

 private:
  Testee oracle_;
  std::optional<Session> session_;
  WarmProcesses processes_;
  std::optional<Pipeline> pipeline_;
  Progress progress_;
};

bool failed(const Json& record) {
  const std::string verdict = record.at("verdict").get<std::string>();
  return verdict == "fail" || verdict == "crash" || verdict == "hang" || verdict == "unresolved";
}

std::string comment(const std::string& text) {
  std::string result = "# ";
  for (const char c : text) {
    result += c;
    if (c == '\n') result += "# ";
  }
  return result + "\n";
}

void keep_failures(const GenerateOptions& options, const Suite& suite, const std::vector<Drawn>& drawn,
                   const std::vector<Json>& records) {
  std::map<std::string, const Json*> failures;
  for (const Json& record : records)
    if (failed(record)) failures[record.at("id").get<std::string>()] = &record;
  if (failures.empty()) return;
  std::optional<Shrinker> shrinker;
  int left = options.shrink;
  for (const Drawn& each : drawn) {
    const auto failing = std::find_if(each.cases.begin(), each.cases.end(),
                                      [&](const Case& a_case) { return failures.contains(a_case.id); });
    if (failing == each.cases.end()) continue;
    const Json& record = *failures.at(failing->id);
    Drawn kept = each;
    if (left > 0) {
      --left;
      if (!shrinker) shrinker.emplace(options, suite);
      kept = shrinker->shrink_one(each, record);
    }
    const fs::path file = fs::path(options.kept) / file_name(each.origin);
    const std::string again = fmt::format("fsdp-cts run --scenarios {}{}", quoted(file.string()),
                                          options_text(kept_options(options.run)));
    write_whole_file_and_folders(
        file, comment(fmt::format("{}: {}\nagain: {}", record.at("code").get<std::string>(),
                                  record.at("summary").get<std::string>(), again)) +
                  kept.text);
    std::cout << fmt::format("kept: {} ({}{})\n     again: {}\n", file.string(),
                             kept.sketch == each.sketch ? "as drawn" : "shrunk",
                             fmt::format(", {} lines", std::count(kept.text.begin(), kept.text.end(), '\n')),
                             again);
  }
}

}  // namespace

int generate(const GenerateOptions& options, const Suite& suite) {
  const AllDrawn all = draw_all(options, oracle_of(suite));
  const int missing = options.count - static_cast<int>(all.drawn.size());
  std::cout << fmt::format(
      "drawn: {} scenarios of seed {}, {} more thrown away because their values round or "
      "show nothing{}\n",
      all.drawn.size(), options.seed, all.redrawn,
      missing > 0 ? fmt::format("; none fit for {} numbers", missing) : "");
  if (!options.out.empty()) {
    for (const Drawn& each : all.drawn)
      write_whole_file_and_folders(fs::path(options.out) / file_name(each.origin), each.text);
    std::cout << fmt::format("written to {}\n", options.out);
  }
  if (options.write_only) return 0;
  GivenCases given;
  std::map<std::string, int> index;
  for (const Drawn& each : all.drawn) {
    for (const Case& a_case : each.cases) {
      given.cases.push_back(a_case);
      index[a_case.id] = each.origin.index;
    }
  }
  if (given.cases.empty()) throw UsageError("no scenario is fit for the exact lane; take another seed");
  given.repeat = [&](const Case& a_case) {
    return fmt::format("fsdp-cts generate --seed {} --index {} --count 1", options.seed, index.at(a_case.id));
  };
  const RunResult result = run_given(options.run, suite, std::move(given));
  keep_failures(options, suite, all.drawn, result.records);
  return result.exit_code;
}

}  // namespace fsdp_cts::generate
