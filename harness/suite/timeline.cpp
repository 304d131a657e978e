#include "harness/suite/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fsdp_cts {
namespace {

constexpr std::size_t shown_spans = 120;  // of a rank
constexpr std::size_t shown_marks = 32;

struct Event {
  std::int64_t lane = 0;
  double begin = 0;
  double duration = 0;
  std::string kind;
  std::string name;
  std::string text;  // of a finding
};

struct RankTrace {
  std::string machine;
  std::map<std::int64_t, std::string> lanes;
  std::vector<Event> spans;  // by begin
  std::vector<Event> marks;
};

// Throws Json::exception for what is no trace.
RankTrace parse(const Json& trace) {
  RankTrace parsed;
  parsed.machine = trace.value("otherData", Json::object()).value("machine", "");
  for (const Json& event : trace.at("traceEvents")) {
    const auto phase = event.at("ph").get<std::string>();
    const auto name = event.at("name").get<std::string>();
    const Json arguments = event.value("args", Json::object());
    const std::int64_t lane = event.value("tid", std::int64_t{0});
    if (phase == "M" && name == "thread_name") parsed.lanes[lane] = arguments.at("name").get<std::string>();
    if (phase == "X")
      parsed.spans.push_back({lane, event.at("ts").get<double>(), event.at("dur").get<double>(),
                              event.value("cat", ""), name, ""});
    if (phase == "i")
      parsed.marks.push_back({lane, event.at("ts").get<double>(), 0, "", name, arguments.value("text", "")});
  }
  std::stable_sort(parsed.spans.begin(), parsed.spans.end(),
                   [](const Event& a, const Event& b) { return a.begin < b.begin; });
  return parsed;
}

std::optional<RankTrace> read(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream) return std::nullopt;
  const Json trace = Json::parse(stream, nullptr, false);
  try {
    return parse(trace);
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

Json shortened(const RankTrace& trace, int rank) {
  const std::size_t count = trace.spans.size();
  std::size_t first = count > shown_spans ? count - shown_spans : 0;
  if (!trace.marks.empty()) {
    const auto at = std::partition_point(trace.spans.begin(), trace.spans.end(), [&](const Event& span) {
      return span.begin < trace.marks.front().begin;
    });
    const auto index = static_cast<std::size_t>(at - trace.spans.begin());
    first = std::min(first, index > shown_spans / 2 ? index - shown_spans / 2 : 0);
  }
  const std::size_t end = std::min(count, first + shown_spans);
  Json lanes = Json::array();
  std::map<std::int64_t, std::size_t> place;
  for (const auto& [lane, name] : trace.lanes) {
    place[lane] = lanes.size();
    lanes.push_back({{"name", name}, {"spans", Json::array()}});
  }
  for (std::size_t i = first; i < end; ++i) {
    const Event& span = trace.spans[i];
    if (const auto lane = place.find(span.lane); lane != place.end())
      lanes[lane->second]["spans"].push_back({span.begin, span.duration, span.kind, span.name});
  }
  Json marks = Json::array();
  const double begin = first < count ? trace.spans[first].begin : 0;
  const double last = end > first ? trace.spans[end - 1].begin : begin;
  for (const Event& mark : trace.marks) {
    const auto lane = place.find(mark.lane);
    if (lane == place.end() || mark.begin < begin || mark.begin > last || marks.size() == shown_marks)
      continue;
    marks.push_back({lane->second, mark.begin, mark.name, mark.text});
  }
  return {{"rank", rank}, {"lanes", lanes}, {"marks", marks}, {"not_shown", count - (end - first)}};
}

}  // namespace

Json read_timeline(const std::filesystem::path& folder, int world) {
  Json timeline{{"machine", ""}, {"ranks", Json::array()}};
  for (int rank = 0; rank < world; ++rank) {
    const auto trace = read(folder / fmt::format("rank{}.json", rank));
    if (!trace) continue;
    timeline["machine"] = trace->machine;
    timeline["ranks"].push_back(shortened(*trace, rank));
  }
  return timeline["ranks"].empty() ? Json(nullptr) : timeline;
}

}  // namespace fsdp_cts
