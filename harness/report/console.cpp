#include "harness/report/console.hpp"

#include <fmt/format.h>
#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "harness/protocol/utf8.hpp"

namespace fsdp_cts {
namespace {

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string duration(double seconds) {
  if (seconds < 1) return fmt::format("{:.0f} ms", seconds * 1000);
  if (seconds < 100) return fmt::format("{:.1f} s", seconds);
  const std::int64_t whole = std::llround(seconds);
  return fmt::format("{} min {} s", whole / 60, whole % 60);
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
       {"expectation", "clause",    "step",  "verb",    "iteration", "label",    "phase", "what",
        "model",       "parameter", "rank",  "index",   "actual",    "expected", "ulp",   "golden",
        "reference",   "buffer",    "bytes", "earlier", "later",     "missing"}) {
    auto value = divergence.find(key);
    if (value != divergence.end())
      fmt::print(out, "       {:<12}{}\n", key,
                 value->is_string() ? value->get<std::string>() : value->dump());
  }
}

// What the culprit itself said: the end of its output or traceback, the beginning of its stacks.
void print_lines(std::ostream& out, const char* title, const std::string& text, bool from_end) {
  constexpr std::size_t max_lines = 10, max_width = 160;
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.find_first_not_of(" \t\r") != std::string::npos) lines.push_back(shortened(line, max_width));
  }
  if (lines.empty()) return;
  const std::size_t shown = std::min(lines.size(), max_lines);
  const std::size_t first = from_end ? lines.size() - shown : 0;
  fmt::print(out, "     {}{}\n", title,
             shown == lines.size()
                 ? ""
                 : fmt::format(" ({} {} of {} lines)", from_end ? "last" : "first", shown, lines.size()));
  for (std::size_t i = first; i < first + shown; ++i) fmt::print(out, "       | {}\n", lines[i]);
}

void print_evidence(std::ostream& out, const Json& record) {
  const Json& divergence = record.at("divergence");
  const auto text = [](const Json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  if (divergence.is_object()) {
    const Json error = divergence.value("error", Json::object());
    print_lines(out, "traceback", error.is_object() ? text(error, "traceback") : "", true);
    print_lines(out, "output of the rank", text(divergence, "output"), true);
    print_lines(out, "stacks of the rank", text(divergence, "stacks"), false);
  }
  if (record.contains("bundle")) fmt::print(out, "     bundle: {}\n", record.at("bundle").get<std::string>());
}

void print_failure(std::ostream& out, const Json& record) {
  fmt::print(out, "\n{} {}\n     {}: {}\n", upper(record.at("verdict").get<std::string>()),
             record.at("id").get<std::string>(), record.at("code").get<std::string>(),
             record.at("summary").get<std::string>());
  print_divergence(out, record.at("divergence"));
  print_evidence(out, record);
  fmt::print(out, "     again: {}\n", record.at("repeat").get<std::string>());
}

// Skips by reason, what is unsupported by scenario and reason: a reader must see why something was not
// judged, not 300 lines of it.
void print_left_out(std::ostream& out, const std::vector<Json>& records) {
  std::map<std::string, int> skipped;
  std::map<std::pair<std::string, std::string>, int> unsupported;
  for (const Json& record : records) {
    const std::string summary = record.at("summary").get<std::string>();
    if (record.at("verdict") == "skipped") ++skipped[summary];
    if (is_unsupported(record)) ++unsupported[{record.at("scenario").get<std::string>(), summary}];
  }
  for (const auto& [reason, count] : skipped) fmt::print(out, "  {:>4} skipped: {}\n", count, reason);
  for (const auto& [what, count] : unsupported)
    fmt::print(out, "  {:>4} unsupported: {}: {}\n", count, what.first, what.second);
  if (!unsupported.empty())
    fmt::print(
        out,
        "  What is unsupported is not as expected. Announce it (--known-deviations FILE), or choose a level "
        "that does not\n  ask for it (--level fully_shard, fsdp, composable, wrap).\n");
}

// 61.3 %
std::string share(long part, long whole) {
  return whole == 0 ? "none"
                    : fmt::format("{:.1f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

void print_compared(std::ostream& out, const Json& sums) {
  const Json& distinct = sums.at("distinct");
  const auto number = [](const Json& counts, const char* key) { return counts.at(key).get<long>(); };
  fmt::print(out, "  compared {} elements in {} tensors, {} of them bit for bit\n",
             grouped(number(sums, "elements")), grouped(number(sums, "tensors")),
             grouped(number(sums, "exact_elements")));
  fmt::print(
      out,
      "  the {} cases judged are {} distinct programs; over these, {} elements, {} of them bit for bit\n",
      grouped(number(sums, "cases")), grouped(number(distinct, "cases")),
      grouped(number(distinct, "elements")), grouped(number(distinct, "exact_elements")));
  fmt::print(out, "  exact lane: {} of the cases with numbers, {} of the distinct programs\n",
             share(number(sums, "exact_cases"), number(sums, "numeric_cases")),
             share(number(distinct, "exact_cases"), number(distinct, "numeric_cases")));
  const Json& truths = sums.at("truths");
  fmt::print(
      out, "  comparisons with the reference {}, with the recording {}{}\n",
      grouped(number(truths, "reference")), grouped(number(truths, "golden")),
      number(truths, "golden_left_out") == 0
          ? ""
          : fmt::format(", from which the recording was left out {} (made in another order of reductions)",
                        grouped(number(truths, "golden_left_out"))));
  fmt::print(out,
             "  {} collectives on every rank, {} of them witnessed by the transport, the others as reported "
             "by the testee\n",
             grouped(number(sums, "collectives")), grouped(number(sums, "witnessed")));
}

// Who is judged and by which recordings: "testee pytorch 2.15.0, recordings of pytorch 2.11.0, edition 2.15".
void print_versions(std::ostream& out, const Json& header) {
  const Json hello = header.at("testee").value("hello", Json());
  std::string line;
  if (hello.is_object() && hello.contains("implementation")) {
    const Json& implementation = hello["implementation"];
    line = fmt::format("testee {} {} ({} on {})", implementation.value("name", ""),
                       implementation.value("version", ""), hello.value("backend", "?"),
                       hello.value("device", "?"));
  }
  const Json recordings = header.value("recordings", Json());
  if (recordings.is_object() && !recordings.at("makers").empty())
    line += fmt::format("{}recordings of {}", line.empty() ? "" : ", ",
                        fmt::join(recordings["makers"].get<std::vector<std::string>>(), " and "));
  if (header.contains("edition"))
    line += fmt::format("{}edition {}", line.empty() ? "" : ", ", header["edition"].get<std::string>());
  if (!line.empty()) fmt::print(out, "  {}\n", line);
  for (const Json& note : header.value("notes", Json::array()))
    fmt::print(out, "  note: {}\n", note.get<std::string>());
}

constexpr std::size_t max_failures_shown = 20;

}  // namespace

bool needs_attention(const Json& record) {
  switch (verdict_from_name(record.at("verdict").get<std::string>())) {
    case VerdictKind::pass:
    case VerdictKind::xfail:
    case VerdictKind::skipped:
      return false;
    default:
      return true;
  }
}

bool is_unsupported(const Json& record) {
  return record.at("verdict") == verdict_name(VerdictKind::unsupported);
}

void print_summary(std::ostream& out, const Report& report) {
  std::vector<const Json*> failures;
  for (const Json& record : report.cases) {
    // Unsupported cases can be thousands of one kind; they are listed by scenario below.
    if (needs_attention(record) && !is_unsupported(record)) failures.push_back(&record);
  }
  for (std::size_t i = 0; i < std::min(failures.size(), max_failures_shown); ++i)
    print_failure(out, *failures[i]);
  if (failures.size() > max_failures_shown)
    fmt::print(out, "\n… and {} more; all of them are in the report (--report, --html).\n",
               failures.size() - max_failures_shown);

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
  // Where upstream's tolerance alone would have said otherwise.
  const auto noise_allowed = [](const Json& record) { return record.value("max_noise", 0.0) > 0; };
  if (const auto count = std::count_if(report.cases.begin(), report.cases.end(), noise_allowed)) {
    double largest = 0;
    for (const Json& record : report.cases) largest = std::max(largest, record.value("max_noise", 0.0));
    fmt::print(
        out,
        "  {} beyond upstream's tolerance and within the noise of rounding, at most {:.2g} of 16 noises\n",
        count == 1 ? "1 case" : fmt::format("{} cases", count), largest);
  }
  print_compared(out, sums);
}

void ConsoleReporter::begin(const Json& header) {
  header_ = header;
  total_ = header.at("cases").get<std::size_t>();
  for (const auto& [scenario, count] : header.at("selection").at("scenarios").items())
    expected_[scenario] = count.get<int>();
  const Json& testee = header.at("testee");
  fmt::print(out_, "fsdp-cts {}: {} cases of {} scenarios on {}\n", header.at("suite").get<std::string>(),
             total_, expected_.size(), testee.at("name").get<std::string>());
  print_versions(out_, header);
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
