#include "harness/report/console.hpp"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <cmath>

namespace fsdp_cts {
namespace {

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string duration(double seconds) {
  if (seconds < 1) return fmt::format("{:.0f} ms", seconds * 1000);
  if (seconds < 100) return fmt::format("{:.1f} s", seconds);
  return fmt::format("{:.0f} min {:.0f} s", std::floor(seconds / 60),
                     seconds - 60 * std::floor(seconds / 60));
}

std::string counts_text(const Json& verdicts) {
  std::string text;
  for (const auto& [name, count] : verdicts.items())
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count.get<int>(), name);
  return text.empty() ? "no cases" : text;
}

// 1,234,567
std::string grouped(long number) {
  if (number < 1000) return std::to_string(number);
  return fmt::format("{},{:03}", grouped(number / 1000), number % 1000);
}

void print_divergence(std::ostream& out, const Json& divergence) {
  for (const char* key :
       {"expectation", "clause", "step", "verb", "iteration", "label", "phase", "what", "model", "parameter",
        "rank", "index", "actual", "expected", "ulp", "golden", "reference"}) {
    auto value = divergence.find(key);
    if (value != divergence.end())
      fmt::print(out, "       {:<12}{}\n", key,
                 value->is_string() ? value->get<std::string>() : value->dump());
  }
}

void print_failure(std::ostream& out, const Json& record) {
  fmt::print(out, "\n{} {}\n     {}: {}\n", upper(record.at("verdict").get<std::string>()),
             record.at("id").get<std::string>(), record.at("code").get<std::string>(),
             record.at("summary").get<std::string>());
  print_divergence(out, record.at("divergence"));
  fmt::print(out, "     again: {}\n", record.at("repeat").get<std::string>());
}

// Skips and unsupported cases by reason: a reader must see why something did not run, not 300 lines of it.
void print_left_out(std::ostream& out, const std::vector<Json>& records) {
  std::map<std::pair<std::string, std::string>, int> reasons;
  for (const Json& record : records) {
    const std::string verdict = record.at("verdict").get<std::string>();
    if (verdict == "skipped" || verdict == "unsupported")
      ++reasons[{verdict, record.at("summary").get<std::string>()}];
  }
  for (const auto& [reason, count] : reasons)
    fmt::print(out, "  {:>4} {}: {}\n", count, reason.first, reason.second);
}

constexpr std::size_t most_failures_told = 20;

}  // namespace

bool needs_attention(const Json& record) {
  switch (verdict_from_name(record.at("verdict").get<std::string>())) {
    case VerdictKind::pass:
    case VerdictKind::xfail:
    case VerdictKind::skipped:
    case VerdictKind::unsupported:
      return false;
    default:
      return true;
  }
}

void print_summary(std::ostream& out, const Report& report) {
  std::vector<const Json*> failures;
  for (const Json& record : report.cases) {
    if (needs_attention(record)) failures.push_back(&record);
  }
  for (std::size_t i = 0; i < std::min(failures.size(), most_failures_told); ++i)
    print_failure(out, *failures[i]);
  if (failures.size() > most_failures_told)
    fmt::print(out, "\n… and {} more; all of them are in the report (--report, --html).\n",
               failures.size() - most_failures_told);

  std::vector<const Json*> slowest;
  for (const Json& record : report.cases) slowest.push_back(&record);
  std::stable_sort(slowest.begin(), slowest.end(),
                   [](const Json* a, const Json* b) { return a->at("seconds") > b->at("seconds"); });
  if (slowest.size() > 1) {
    fmt::print(out, "\nslowest\n");
    for (std::size_t i = 0; i < std::min<std::size_t>(slowest.size(), 3); ++i) {
      fmt::print(out, "  {:>9}  {}\n", duration(slowest[i]->at("seconds").get<double>()),
                 slowest[i]->at("id").get<std::string>());
    }
  }
  const Json sums = sum_counts(report.cases);
  const Json& testee = report.header.at("testee");
  fmt::print(out, "\n{} on {}: {} in {}\n",
             report.cases.size() == 1 ? "1 case" : fmt::format("{} cases", report.cases.size()),
             testee.at("name").get<std::string>(), counts_text(report.footer.at("verdicts")),
             duration(report.footer.at("seconds").get<double>()));
  print_left_out(out, report.cases);
  fmt::print(out,
             "  compared {} elements in {} tensors, {} of them bit for bit; {} collectives on every rank\n",
             grouped(sums["elements"]), grouped(sums["tensors"]), grouped(sums["exact_elements"]),
             grouped(sums["collectives"]));
}

void ConsoleReporter::begin(const Json& header) {
  header_ = header;
  total_ = header.at("cases").get<std::size_t>();
  for (const auto& [scenario, count] : header.at("selection").at("scenarios").items())
    expected_[scenario] = count.get<int>();
  fmt::print(out_, "fsdp-cts {}: {} cases of {} scenarios on {}\n", header.at("suite").get<std::string>(),
             total_, expected_.size(), header.at("testee").at("name").get<std::string>());
  out_.flush();
}

void ConsoleReporter::progress() {
  const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const std::size_t done = records_.size();
  const double left = done == 0 ? 0 : passed / static_cast<double>(done) * static_cast<double>(total_ - done);
  fmt::print(out_, "\r\x1b[K{} of {} done, {} not passed, {} left ({})", done, total_, not_passed_,
             total_ - done, duration(left));
  out_.flush();
}

void ConsoleReporter::scenario_line(const std::string& scenario) {
  const auto& records = open_[scenario];
  double seconds = 0;
  for (const Json& record : records) seconds += record.at("seconds").get<double>();
  const bool attention = std::any_of(records.begin(), records.end(), needs_attention);
  fmt::print(out_, "{} {}: {} in {}\n", attention ? "--" : "ok", scenario,
             counts_text(count_verdicts(records)), duration(seconds));
  out_.flush();
  open_.erase(scenario);
}

void ConsoleReporter::add(const Json& record) {
  records_.push_back(record);
  if (needs_attention(record)) ++not_passed_;
  if (live_) return progress();
  const std::string scenario = record.at("scenario").get<std::string>();
  open_[scenario].push_back(record);
  if (static_cast<int>(open_[scenario].size()) == expected_[scenario]) scenario_line(scenario);
}

void ConsoleReporter::finish(const Json& footer) {
  if (live_) fmt::print(out_, "\r\x1b[K");
  print_summary(out_, {header_, records_, footer});
  out_.flush();
}

}  // namespace fsdp_cts
