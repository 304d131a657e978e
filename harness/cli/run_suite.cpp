#include "harness/cli/run_suite.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <iostream>
#include <random>

#include "harness/case/explain.hpp"
#include "harness/case/filter.hpp"
#include "harness/case/machine.hpp"
#include "harness/cli/bundle.hpp"
#include "harness/cli/machine_facts.hpp"
#include "harness/cli/must_run.hpp"
#include "harness/cli/pipeline.hpp"
#include "harness/judge/known_deviations.hpp"
#include "harness/report/console.hpp"
#include "harness/report/html.hpp"
#include "harness/report/junit.hpp"
#include "harness/report/ndjson.hpp"

namespace fsdp_cts::cli {
namespace {

constexpr int most_bundles = 50;  // failures beyond this leave a record only

std::vector<std::string> all_filters(const RunOptions& options) {
  std::vector<std::string> filters = options.filters;
  if (options.world > 0) filters.push_back(fmt::format("world:{}", options.world));
  if (options.quick) filters.push_back("label:quick");
  return filters;
}

// Which level a complete report of this selection can claim.
std::string level(const RunOptions& options) {
  if (!options.filters.empty() || options.world > 0) return "partial";
  return options.quick ? "quick" : "full";
}

class SuiteRun {
 public:
  SuiteRun(const RunOptions& options, const Suite& suite)
      : options_(options),
        selected_(select(suite, all_filters(options))),
        suite_(suite),
        machine_(this_machine()) {
    if (!options.must_run.empty()) must_run_ = MustRun(options.must_run);
    if (!options.expectations.empty()) {
      deviations_.emplace(options.expectations,
                          std::map<std::string, std::string>{{"testee", options.testee.spec},
                                                             {"backend", options.testee.backend},
                                                             {"device", options.testee.device}},
                          fmt::format("{:%Y-%m-%d}", fmt::gmtime(started_)));
    }
    reporters_.push_back(std::make_unique<ConsoleReporter>(std::cout, isatty(STDOUT_FILENO) != 0));
    if (!options.report.empty()) reporters_.push_back(std::make_unique<NdjsonReporter>(options.report));
  }

  int run() {
    std::vector<const Case*> runnable;
    std::vector<std::pair<const Case*, std::string>> left_out;
    for (const Case& each : selected_) {
      if (auto reason = why_not(each)) {
        left_out.emplace_back(&each, *reason);
      } else {
        runnable.push_back(&each);
      }
    }
    if (options_.seed) std::shuffle(runnable.begin(), runnable.end(), std::mt19937(*options_.seed));
    if (!runnable.empty()) act_out(runnable);
    begin(nullptr);
    for (const auto& [a_case, reason] : left_out) add(*a_case, skipped(*a_case, reason), nullptr);
    return finish();
  }

 private:
  std::optional<std::string> why_not(const Case& a_case) const {
    if (auto reason = why_not_runnable(a_case, machine_)) return reason;
    const std::string& device = options_.testee.device;
    if (!device.empty() && device != "cpu" && machine_.gpus == 0)
      return fmt::format("device {} was asked for and this machine has no GPU", device);
    return std::nullopt;
  }

  void act_out(const std::vector<const Case*>& cases) {
    PipelineOptions options;
    options.testee = testee_from(options_.testee, suite_);
    const bool record = !options_.record.empty();
    if (std::any_of(cases.begin(), cases.end(),
                    [&](const Case* each) { return asks_reference(*each, record); }))
      options.oracle = oracle_of(suite_);
    options.session.jobs = options_.jobs;
    options.record = record;
    options.golden = options.record            ? std::filesystem::path(options_.record)
                     : options_.golden.empty() ? suite_.golden_store()
                                               : std::filesystem::path(options_.golden);
    command_ = options.testee.command;
    Pipeline pipeline(std::move(options));
    pipeline.run(cases, [&](const Case& a_case, const Verdict& verdict, const CaseRun& run) {
      begin(pipeline.hello());
      add(a_case, verdict, &run);
    });
    pipeline.close();
    troubles_ = pipeline.testee_troubles();
    if (!options_.record.empty()) write_manifest(pipeline);
  }

  void write_manifest(const Pipeline& pipeline) {
    GoldenStore store(options_.record);
    store.prune();
    const Json hello = pipeline.hello().is_object() ? pipeline.hello() : Json::object();
    store.write_manifest({{"implementation", hello.value("implementation", Json())},
                          {"environment", hello.value("environment", Json::object())},
                          {"backend", hello.value("backend", Json())},
                          {"device", hello.value("device", Json())},
                          {"reduction_order", hello.value("reduction_order", Json())},
                          {"harness", suite_version()},
                          {"command", fmt::format("fsdp-cts run --testee pytorch --record golden/store")}});
    std::cout << fmt::format("recorded {} cases in {}\n", pipeline.recorded(), options_.record);
  }

  void begin(const Json& hello) {
    if (begun_) return;
    begun_ = true;
    Json scenarios = Json::object();
    for (const Case& each : selected_) scenarios[each.scenario] = scenarios.value(each.scenario, 0) + 1;
    header_ = {{"type", "header"},
               {"format", 1},
               {"suite", suite_version()},
               {"testee",
                {{"name", options_.testee.spec},
                 {"command", command_},
                 {"backend", options_.testee.backend},
                 {"device", options_.testee.device},
                 {"hello", hello}}},
               {"machine", machine_facts(machine_)},
               {"selection",
                {{"filters", options_.filters},
                 {"world", options_.world},
                 {"quick", options_.quick},
                 {"level", level(options_)},
                 {"scenarios", scenarios}}},
               {"cases", selected_.size()},
               {"order_seed", options_.seed ? Json(*options_.seed) : Json(nullptr)},
               {"started", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(started_))}};
    for (auto& reporter : reporters_) reporter->begin(header_);
  }

  void add(const Case& a_case, const Verdict& judged, const CaseRun* run) {
    std::string note;
    const Verdict verdict = deviations_ ? deviations_->apply(a_case, judged, note) : judged;
    const std::string repeat =
        fmt::format("fsdp-cts run {}{}", quoted(a_case.id), testee_arguments(options_.testee));
    Json record = case_record(a_case, verdict, repeat, note);
    if (run && (options_.keep || (needs_attention(record) && bundles_ < most_bundles))) {
      record["bundle"] = write_bundle(options_.failures, a_case, *run, record, options_.testee).string();
      ++bundles_;
    }
    for (auto& reporter : reporters_) reporter->add(record);
    records_.push_back(std::move(record));
  }

  int finish() {
    const Json verdicts = count_verdicts(records_);
    int code = exit_code(verdicts);
    std::vector<std::string> faults = troubles_;
    if (must_run_) {
      for (std::string& fault : must_run_->missing(records_)) faults.push_back(std::move(fault));
    }
    if (deviations_) {
      const std::vector<Case> all =
          load_cases(suite_.conformance());  // a stale entry is one that no case of the suite matches
      for (std::string& fault : deviations_->faults(all)) faults.push_back(std::move(fault));
      if (options_.fix) deviations_->rewrite(all);
    }
    if (!faults.empty()) code = 1;
    Json footer{{"type", "footer"},
                {"cases", records_.size()},
                {"verdicts", verdicts},
                {"seconds", std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count()},
                {"faults", faults},
                {"exit_code", code}};
    for (auto& reporter : reporters_) reporter->finish(footer);
    for (const std::string& fault : faults) std::cout << "not in order: " << fault << "\n";
    const Report report{header_, records_, footer};
    if (!options_.junit.empty()) write_junit(report, options_.junit);
    if (!options_.html.empty()) write_html(report, explanations(), options_.html);
    return code;
  }

  std::map<std::string, std::string> explanations() const {
    std::map<std::string, std::string> texts;
    for (const Case& each : selected_) texts[each.id] = explain_case(each);
    return texts;
  }

  std::time_t started_ = std::time(nullptr);
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const RunOptions& options_;
  std::vector<Case> selected_;
  const Suite& suite_;
  Machine machine_;
  std::optional<MustRun> must_run_;
  std::optional<KnownDeviations> deviations_;
  std::vector<std::unique_ptr<Reporter>> reporters_;
  std::vector<Json> records_;
  std::vector<std::string> command_, troubles_;
  Json header_;
  bool begun_ = false;
  int bundles_ = 0;
};

}  // namespace

int run_suite(const RunOptions& options, const Suite& suite) {
  return SuiteRun(options, suite).run();
}

}  // namespace fsdp_cts::cli
