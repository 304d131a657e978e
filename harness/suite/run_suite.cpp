#include "harness/suite/run_suite.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <iostream>
#include <limits>
#include <random>
#include <set>

#include "harness/judge/known_deviations.hpp"
#include "harness/report/console.hpp"
#include "harness/report/ndjson.hpp"
#include "harness/runner/checkpoints.hpp"
#include "harness/scenario/catalogue/explain.hpp"
#include "harness/scenario/catalogue/load.hpp"
#include "harness/scenario/catalogue/machine.hpp"
#include "harness/scenario/edition.hpp"
#include "harness/suite/bundle.hpp"
#include "harness/suite/fresh_draws.hpp"
#include "harness/suite/machine_facts.hpp"
#include "harness/suite/must_run.hpp"
#include "harness/suite/pipeline.hpp"
#include "harness/suite/timeline.hpp"

namespace fsdp_cts {
namespace {

constexpr int simulated_devices = 8;  // of each process
constexpr int max_bundles = 50;       // failures beyond this leave a record only

std::vector<std::string> all_filters(const RunOptions& options, const Suite& suite) {
  std::vector<std::string> filters = options.filters;
  if (!options.level.empty()) {
    if (!options.scenarios.empty())
      throw UsageError("--level is about the suite's own scenarios, not --scenarios");
    if (!options.filters.empty() || options.world > 0 || options.quick || options.per_scenario > 0 ||
        !options.must_run.empty())
      throw UsageError(
          "--level is a selection of its own: no filter, --world, --quick, --per-scenario or --must-run "
          "beside it");
    filters = named_level(suite, options.level).patterns();
  }
  if (options.world > 0) filters.push_back(fmt::format("world:{}", options.world));
  if (options.quick) filters.push_back("label:quick");
  if (options.fresh_data && options.level.empty()) filters.push_back("lane:exact");
  return filters;
}

// Every option that decides how a case is run or judged. A new one goes here.
std::vector<std::pair<const char*, std::string*>> decisive_options(RunOptions& options) {
  return {{"--testee", &options.testee.spec},
          {"--python", &options.testee.python},
          {"--backend", &options.testee.backend},
          {"--device", &options.testee.device},
          {"--golden", &options.golden},
          {"--edition", &options.edition},
          {"--scenarios", &options.scenarios},
          {"--checkpoints", &options.checkpoints},
          {"--sim-machine", &options.testee.sim_machine},
          {"--sim-memory", &options.testee.sim_memory}};
}

std::filesystem::path compared_store(const RunOptions& options, const Suite& suite) {
  if (options.golden.empty()) return suite.golden_store();
  if (options.golden != "here") return options.golden;
  if (!std::filesystem::exists(suite.own_store()))
    throw UsageError(
        fmt::format("{} is not there; golden/record --here makes it", suite.own_store().string()));
  return suite.own_store();
}

// By whose rules the cases are judged.
Edition edition_for(const RunOptions& options, const Suite& suite) {
  if (!options.edition.empty()) {
    if (const auto asked = edition_of(options.edition)) return *asked;
    throw UsageError(
        fmt::format("--edition needs a PyTorch version such as 2.15, not '{}'", options.edition));
  }
  if (options.testee.spec == "pytorch") {
    if (const auto own = edition_of(torch_version(options.testee.python))) return *own;
  }
  const Json made_by =
      GoldenStore(compared_store(options, suite)).manifest().value("implementation", Json::object());
  return edition_of(made_by.value("version", "")).value_or(default_edition);
}

// How this program was started, with paths inside the suite relative to its root.
std::string command_line(const Suite& suite) {
  std::ifstream stream("/proc/self/cmdline", std::ios::binary);
  const std::string inside = suite.root.string() + "/";
  std::string text;
  for (std::string word; std::getline(stream, word, '\0');) {
    if (text.empty()) {
      text = std::filesystem::path(word).filename().string();
      continue;
    }
    text += " " + quoted(word.rfind(inside, 0) == 0 ? word.substr(inside.size()) : word);
  }
  return text;
}

// Which level a complete report of this selection can claim.
std::string level(const RunOptions& options) {
  if (options.fresh_data) return "partial";  // the exact lane alone reaches no level
  if (!options.level.empty()) return options.level;
  if (!options.filters.empty() || options.world > 0 || options.per_scenario > 0 || !options.scenarios.empty())
    return "partial";
  return options.quick ? "quick" : "full";
}

// What is known about the suite's own testees stands beside the scenarios; everybody else brings a file.
std::string known_deviations_for(const RunOptions& options, const Suite& suite) {
  if (!options.known_deviations.empty()) return options.known_deviations;
  const std::string& spec = options.testee.spec;
  const std::string name = spec.starts_with("mutant:") ? "cpp" : spec;
  if (name != "cpp" && name != "pytorch") return "";
  const auto file = suite.conformance() / "known_deviations" / (name + ".yaml");
  return std::filesystem::exists(file) ? file.string() : "";
}

std::vector<Case> cases_of(const RunOptions& options, const Suite& suite,
                           const std::vector<std::string>& filters) {
  return options.scenarios.empty() ? select(suite, filters) : select_from(options.scenarios, suite, filters);
}

// Through the host, so that ranks need no GPU each, as NCCL's do.
bool shares_gpus(const std::string& backend) {
  return backend == "shm" || backend == "gloo";
}

// With the devices that the run simulates or shares.
Machine offered(Machine machine, const RunOptions& options) {
  if (options.testee.device == "sim") {
    machine.gpus = simulated_devices;
    machine.simulated = true;
  } else if (options.testee.device == "cuda" && shares_gpus(options.testee.backend)) {
    if (machine.gpus > 0) machine.gpus = std::numeric_limits<int>::max();
    machine.nccl = false;
  }
  return machine;
}

// What is asked for, and the cases before it whose checkpoints it loads, unless they lie there already.
std::vector<Case> selected_cases(const RunOptions& options, const Suite& suite, const Machine& machine) {
  std::vector<Case> cases = cases_of(options, suite, all_filters(options, suite));
  if (options.per_scenario > 0) cases = few_of_each_scenario(std::move(cases), options.per_scenario, machine);
  std::set<std::string> known;
  for (const Case& each : cases) known.insert(each.id);
  for (std::size_t looked_at = 0; looked_at < cases.size();) {
    std::vector<std::string> missing;
    for (; looked_at < cases.size(); ++looked_at) {
      const std::string& before = cases[looked_at].continues;
      if (before.empty() || holds_checkpoint(options.checkpoints, before)) continue;
      if (known.insert(before).second) missing.push_back(before);
    }
    if (missing.empty()) break;
    std::vector<Case> found = cases_of(options, suite, missing);
    std::move(found.begin(), found.end(), std::back_inserter(cases));
  }
  return cases;
}

struct StoppedEarly {};

class SuiteRun {
 public:
  SuiteRun(const RunOptions& options, const Suite& suite, WarmProcesses& processes,
           std::optional<GivenCases> given)
      : options_(options),
        processes_(processes),
        machine_(this_machine()),
        offered_(offered(machine_, options)),
        selected_(given ? std::move(given->cases) : selected_cases(options, suite, offered_)),
        repeat_(given ? std::move(given->repeat) : nullptr),
        edition_(edition_for(options, suite)),
        suite_(suite),
        deviations_file_(known_deviations_for(options, suite)) {
    if (!options.record.empty() && options.testee.spec == "pytorch" && options.testee.backend == "shm")
      throw UsageError(
          "--record is over Gloo: recordings hold sums in the order of its ring, not of ranks as shm's are; "
          "leave out --backend shm");
    if (options.fresh_data)
      std::erase_if(selected_, [](const Case& each) { return each.lane != Lane::exact; });
    if (!options.must_run.empty()) must_run_ = MustRun(options.must_run);
    if (!options.level.empty() && !options.fresh_data) must_run_ = named_level(suite, options.level);
    if (!deviations_file_.empty()) {
      const std::string& device = options.testee.device;
      deviations_.emplace(deviations_file_,
                          std::map<std::string, std::string>{{"testee", options.testee.spec},
                                                             {"backend", backend_of(options.testee)},
                                                             {"device", device.empty() ? "cpu" : device}},
                          fmt::format("{:%Y-%m-%d}", fmt::gmtime(started_)));
    }
    // What an earlier run wrote must not be taken for this one's, should it end early.
    for (const auto& [option, file] : options.formats)
      if (!file.empty()) std::filesystem::remove(file);
    reporters_.push_back(std::make_unique<ConsoleReporter>(std::cout, isatty(STDOUT_FILENO) != 0));
    if (!options.report.empty()) reporters_.push_back(std::make_unique<NdjsonReporter>(options.report));
  }

  int run() {
    if (selected_.empty()) {
      std::cout << fmt::format("level {} has no case in the exact lane, so fresh data show nothing of it\n",
                               options_.level);
      return 77;
    }
    std::vector<Case*> runnable;
    std::vector<std::pair<const Case*, std::string>> left_out;
    for (Case& each : selected_) {
      if (auto reason = why_not(each)) {
        left_out.emplace_back(&each, *reason);
      } else {
        runnable.push_back(&each);
      }
    }
    if (options_.fresh_data && !runnable.empty()) draw_data(runnable, left_out);
    if (options_.seed) std::shuffle(runnable.begin(), runnable.end(), std::mt19937(*options_.seed));
    if (!runnable.empty()) run_cases({runnable.begin(), runnable.end()});
    begin(nullptr);
    for (const auto& [a_case, reason] : left_out) add(*a_case, skipped(*a_case, reason), nullptr);
    return finish();
  }

  std::vector<Json> take_records() { return std::move(records_); }

 private:
  std::optional<std::string> why_not(const Case& a_case) const {
    if (auto reason = why_not_runnable(a_case, offered_)) return reason;
    const std::string& device = options_.testee.device;
    if (device.empty() || device == "cpu") return std::nullopt;
    if (offered_.gpus == 0) return fmt::format("device {} was asked for and this machine has no GPU", device);
    if (device == "cuda" && offered_.gpus < a_case.world) return too_few_gpus(a_case, offered_);
    return std::nullopt;
  }

  // Moves the cases for which no data are fit to those that are left out.
  void draw_data(std::vector<Case*>& cases, std::vector<std::pair<const Case*, std::string>>& left_out) {
    std::cout << fmt::format(
        "fresh data {}: only cases of the exact lane are selected; the reference judges them, recordings do "
        "not\n",
        *options_.fresh_data);
    SessionOptions session;
    session.jobs = options_.jobs;
    FreshDraws drawn = draw_fresh_data(cases, *options_.fresh_data, oracle_of(suite_), session);
    draws_ = std::move(drawn.draws);
    std::erase_if(cases, [&](const Case* each) {
      const auto unfit = drawn.unfit.find(each->id);
      if (unfit == drawn.unfit.end()) return false;
      left_out.emplace_back(each, fmt::format("fresh data {}: no draw is fit for the exact lane: {}",
                                              *options_.fresh_data, unfit->second));
      return true;
    });
  }

  void run_cases(const std::vector<const Case*>& cases) {
    PipelineOptions options;
    options.testee = testee_from(options_.testee, suite_);
    const bool record = !options_.record.empty();
    if (std::any_of(cases.begin(), cases.end(),
                    [&](const Case* each) { return asks_reference(*each, record); }))
      options.oracle = oracle_of(suite_, options_.testee.device);
    options.session.jobs = options_.jobs;
    options.session.checkpoints = options_.checkpoints;
    if (options_.timeout) {
      // The other waits keep their proportion to it.
      const Deadlines usual;
      Deadlines& deadlines = options.session.limits.deadlines;
      deadlines.verb = Deadlines::Duration(*options_.timeout);
      deadlines.rendezvous = deadlines.verb * (usual.rendezvous / usual.verb);
      deadlines.total = deadlines.verb * (usual.total / usual.verb);
    }
    options.record = record;
    options.edition = edition_;
    options.golden =
        options.record ? std::filesystem::path(options_.record) : compared_store(options_, suite_);
    command_ = options.testee.command;
    Pipeline pipeline(std::move(options), processes_);
    std::set<const Case*> left(cases.begin(), cases.end());
    int failures = 0;
    try {
      pipeline.run(cases, [&](const Case& a_case, const Verdict& verdict, const CaseRun& run) {
        begin(pipeline.hello());
        left.erase(&a_case);
        add(a_case, verdict, run.ranks.empty() ? nullptr : &run);
        if (needs_attention(records_.back()) && ++failures == options_.max_failures) throw StoppedEarly{};
      });
    } catch (const StoppedEarly&) {
      const std::string reason =
          fmt::format("{} of --max-failures {}: the last was {}", failures, options_.max_failures,
                      records_.back().at("id").get<std::string>());
      for (const Case* each : cases) {
        if (left.contains(each)) add(*each, skipped(*each, reason), nullptr);
      }
    }
    pipeline.close();
    troubles_ = pipeline.testee_troubles();
    if (pipeline.recorded() > 0) {
      write_manifest(pipeline);
    } else if (record) {
      std::cout << fmt::format("recorded nothing in {}\n", options_.record);
    }
  }

  void write_manifest(const Pipeline& pipeline) {
    GoldenStore store(options_.record);
    store.prune();
    const Json hello = pipeline.hello().is_object() ? pipeline.hello() : Json::object();
    store.write_manifest({{"implementation", hello.value("implementation", Json())},
                          {"environment", hello.value("environment", Json::object())},
                          {"cpu", machine_facts(machine_).at("cpu")},
                          {"backend", hello.value("backend", Json())},
                          {"device", hello.value("device", Json())},
                          {"reduction_order", hello.value("reduction_order", Json())},
                          {"harness", suite_version()}},
                         command_line(suite_));
    std::cout << fmt::format("recorded {} cases in {}\n", pipeline.recorded(), options_.record);
  }

  // Whose recordings the testee is compared with; null while recording and with fresh data.
  Json recordings() const {
    if (!options_.record.empty() || options_.fresh_data) return nullptr;
    GoldenStore store(compared_store(options_, suite_));
    const Json manifest = store.manifest();
    const Json environment = manifest.value("environment", Json::object());
    return {{"makers", store.makers_of(selected_)},
            {"own", store.root() != suite_.golden_store()},
            {"store", store.root().string()},
            {"cpu", manifest.value("cpu", environment.value("cpu_capability", "an unknown processor"))}};
  }

  // Sentences about versions that a reader of the verdicts must know.
  std::vector<std::string> version_notes(const Json& hello, const Json& recordings) const {
    std::vector<std::string> notes;
    const Json implementation =
        hello.is_object() ? hello.value("implementation", Json::object()) : Json::object();
    const bool is_pytorch = implementation.value("name", "") == "pytorch";
    const std::string version = implementation.value("version", "");
    if (const auto own = edition_of(version); is_pytorch && own && *own != edition_)
      notes.push_back(
          fmt::format("the testee is PyTorch {} and is judged by the rules of {}; --edition {} takes its own",
                      version, edition_.text(), own->text()));
    if (!recordings.is_object()) return notes;
    if (recordings.at("own").get<bool>())
      notes.push_back(fmt::format("the recordings are not the committed ones but those of {}, made on {}",
                                  recordings.at("store").get<std::string>(),
                                  recordings.at("cpu").get<std::string>()));
    const auto makers = recordings.at("makers").get<std::set<std::string>>();
    if (makers.size() > 1)
      notes.push_back("the recordings are of several makers; `golden/record` makes them anew with one");
    std::set<Edition> recorded;
    for (const std::string& maker : makers)
      if (const auto edition = edition_of(maker.substr(maker.find(' ') + 1))) recorded.insert(*edition);
    recorded.erase(edition_);
    const auto changed = std::count_if(selected_.begin(), selected_.end(), [&](const Case& each) {
      return std::any_of(recorded.begin(), recorded.end(),
                         [&](Edition other) { return changed_between(each, other, edition_); });
    });
    if (changed > 0)
      notes.push_back(
          fmt::format("for {} of these cases PyTorch has changed what is right since they were recorded; the "
                      "reference alone judges them",
                      changed));
    else if (!recorded.empty())
      notes.push_back("recordings and rules are of different versions; none of these cases is concerned");
    return notes;
  }

  void begin(const Json& hello) {
    if (begun_) return;
    begun_ = true;
    if (deviations_ && hello.is_object())
      deviations_->know("version", hello.value("implementation", Json::object()).value("version", ""));
    const Json of_recordings = recordings();
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
               {"edition", edition_.text()},
               {"recordings", of_recordings},
               {"notes", version_notes(hello, of_recordings)},
               {"selection",
                {{"filters", options_.filters},
                 {"world", options_.world},
                 {"quick", options_.quick},
                 {"per_scenario", options_.per_scenario},
                 {"level", repeat_ ? "partial" : level(options_)},
                 {"scenarios", scenarios}}},
               {"known_deviations", deviations_file_.empty() ? Json(nullptr) : Json(deviations_file_)},
               {"cases", selected_.size()},
               {"order_seed", options_.seed ? Json(*options_.seed) : Json(nullptr)},
               {"started", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(started_))}};
    for (auto& reporter : reporters_) reporter->begin(header_);
  }

  void add(const Case& a_case, const Verdict& judged, const CaseRun* run) {
    std::string note;
    const Verdict verdict = deviations_ ? deviations_->apply(a_case, judged, note) : judged;
    const Json kept = kept_options(options_);
    std::string repeat = repeat_ ? repeat_(a_case) : "fsdp-cts run " + quoted(a_case.id);
    repeat += options_text(kept);
    Json record = case_record(a_case, verdict, repeat, note);
    if (const auto draw = draws_.find(a_case.id); draw != draws_.end()) {
      record["fresh_data"] = {
          {"seed", *options_.fresh_data}, {"draw", draw->second}, {"data_seed", a_case.data.at("seed")}};
    }
    if (!options_.testee.sim_trace.empty() && needs_attention(record)) {
      if (Json timeline =
              read_timeline(std::filesystem::path(options_.testee.sim_trace) / a_case.id, a_case.world);
          !timeline.is_null())
        record["timeline"] = std::move(timeline);
    }
    if (run && !repeat_ &&
        (options_.keep || (needs_attention(record) && !is_unsupported(record) && bundles_ < max_bundles))) {
      record["bundle"] = write_bundle(options_.failures, a_case, *run, record, kept).string();
      ++bundles_;
    }
    for (auto& reporter : reporters_) reporter->add(record);
    records_.push_back(std::move(record));
  }

  // What was judged elsewhere says nothing of the device that was asked for.
  std::optional<std::string> other_device() const {
    const std::string& asked = options_.testee.device;
    const Json hello = header_.at("testee").value("hello", Json());
    if (asked.empty() || !hello.is_object()) return std::nullopt;
    const auto said = hello.value("device", "");
    if (said == asked || said.starts_with(asked + ":")) return std::nullopt;
    return fmt::format("--device {} was asked for, and the testee says in hello that it runs on '{}'", asked,
                       said);
  }

  int finish() {
    const Json verdicts = count_verdicts(records_);
    int code = exit_code(verdicts);
    std::vector<std::string> faults = troubles_;
    if (auto fault = other_device()) faults.push_back(std::move(*fault));
    if (must_run_) {
      for (std::string& fault : must_run_->missing(records_)) faults.push_back(std::move(fault));
    }
    if (deviations_) {
      const std::vector<Case> announced = announced_cases();
      for (std::string& fault : deviations_->faults(announced)) faults.push_back(std::move(fault));
      if (options_.fix) std::cout << deviations_->rewrite(announced) << "\n";
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
    if (any_format(options_.formats)) write_formats(options_.formats, report, explanations());
    return code;
  }

  // Of the whole suite, whatever was selected: an entry that matches none of its cases is stale.
  std::vector<Case> announced_cases() const {
    const std::vector<std::string> ids = deviations_->ids();
    if (ids.empty()) return {};
    return load_selected_cases(suite_.conformance(), ids).cases;
  }

  Explanations explanations() const {
    Explanations texts;
    for (const Case& each : selected_) texts[each.id] = explain_case(each);
    return texts;
  }

  std::time_t started_ = std::time(nullptr);
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const RunOptions& options_;
  WarmProcesses& processes_;
  Machine machine_;
  Machine offered_;  // to cases: the machine with what is simulated
  std::vector<Case> selected_;
  std::function<std::string(const Case&)> repeat_;  // of cases that stand in no file
  Edition edition_;
  const Suite& suite_;
  std::string deviations_file_;
  std::optional<MustRun> must_run_;
  std::optional<KnownDeviations> deviations_;
  std::vector<std::unique_ptr<Reporter>> reporters_;
  std::vector<Json> records_;
  std::map<std::string, int> draws_;  // of fresh data, by case
  std::vector<std::string> command_, troubles_;
  Json header_;
  bool begun_ = false;
  int bundles_ = 0;
};

}  // namespace

std::string options_text(const Json& kept) {
  std::string text;
  for (const auto& [option, value] : kept.items()) {
    for (const Json& each : value.is_array() ? value : Json::array({value}))
      text += fmt::format(" {} {}", option, quoted(each.get<std::string>()));
  }
  return text;
}

Json kept_options(const RunOptions& options) {
  RunOptions given = options, otherwise;
  Json kept = Json::object();
  const auto defaults = decisive_options(otherwise);
  for (std::size_t i = 0; const auto& [option, value] : decisive_options(given)) {
    if (*value != *defaults[i++].second) kept[option] = *value;
  }
  if (!options.testee.environment.empty()) kept["--env"] = options.testee.environment;
  if (options.fresh_data) kept["--fresh-data"] = std::to_string(*options.fresh_data);
  return kept;
}

void take_options(const Json& kept, RunOptions& options) {
  RunOptions otherwise;
  const auto defaults = decisive_options(otherwise);
  const auto known = decisive_options(options);
  for (const auto& [option, value] : kept.items()) {
    if (option == "--env") {
      if (options.testee.environment.empty()) value.get_to(options.testee.environment);
      continue;
    }
    if (option == "--fresh-data") {
      if (!options.fresh_data) options.fresh_data = std::stoll(value.get<std::string>());
      continue;
    }
    std::size_t i = 0;
    while (i < known.size() && known[i].first != option) ++i;
    if (i == known.size()) throw UsageError(fmt::format("'{}' is no option that a bundle keeps", option));
    if (*known[i].second == *defaults[i].second) *known[i].second = value.get<std::string>();
  }
}

int run_suite(const RunOptions& options, const Suite& suite, WarmProcesses& processes) {
  RunOptions chosen = options;
  settle(chosen.testee);
  return SuiteRun(chosen, suite, processes, std::nullopt).run();
}

RunResult run_given(const RunOptions& options, const Suite& suite, GivenCases given) {
  RunOptions chosen = options;
  settle(chosen.testee);
  WarmProcesses processes;
  SuiteRun run(chosen, suite, processes, std::move(given));
  RunResult result;
  result.exit_code = run.run();
  processes.close();
  result.records = run.take_records();
  return result;
}

}  // namespace fsdp_cts
