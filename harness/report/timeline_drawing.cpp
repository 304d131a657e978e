#include "harness/report/timeline_drawing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "harness/report/html_page.hpp"

namespace fsdp_cts {
namespace {

constexpr int label_width = 260, width = 900, lane_height = 20, bar_height = 14;  // pixels
constexpr std::size_t max_lanes = 64, max_spans = 4096, max_marks = 256, max_ranks = 64;

struct Bar {
  double begin = 0, duration = 0;
  std::string kind, name;
};
struct Lane {
  std::string name;
  std::vector<Bar> bars;
};
struct Mark {
  std::size_t lane = 0;
  double at = 0;
  std::string code, text;
};
struct RankTimeline {
  std::int64_t rank = 0, not_shown = 0;
  std::vector<Lane> lanes;
  std::vector<Mark> marks;
};

// Throws Json::exception for what is none.
RankTimeline rank_of(const Json& json) {
  RankTimeline rank{json.at("rank").get<std::int64_t>(), json.at("not_shown").get<std::int64_t>(), {}, {}};
  std::size_t spans = 0;
  for (const Json& lane : json.at("lanes")) {
    if (rank.lanes.size() == max_lanes) break;
    Lane& made = rank.lanes.emplace_back(Lane{lane.at("name").get<std::string>(), {}});
    for (const Json& span : lane.at("spans")) {
      if (++spans > max_spans) break;
      made.bars.push_back({span.at(0).get<double>(), span.at(1).get<double>(), span.at(2).get<std::string>(),
                           span.at(3).get<std::string>()});
    }
  }
  for (const Json& mark : json.at("marks")) {
    if (rank.marks.size() == max_marks) break;
    rank.marks.push_back({mark.at(0).get<std::size_t>(), mark.at(1).get<double>(),
                          mark.at(2).get<std::string>(), mark.at(3).get<std::string>()});
  }
  return rank;
}

const char* colour_of_kind(const std::string& kind) {
  if (kind == "compute") return "hsl(145 40% 50%)";
  if (kind == "collective") return "hsl(215 60% 55%)";
  if (kind == "copy") return "hsl(45 70% 50%)";
  return "hsl(0 0% 60%)";  // delays, and the host where it waits
}

std::string label(const std::string& name, std::size_t lane) {
  return fmt::format("<text x=0 y={}>{}</text>", static_cast<int>(lane) * lane_height + bar_height - 3,
                     escaped(name.size() > 40 ? name.substr(0, 37) + "..." : name));
}

std::string svg(const std::string& title, std::size_t lanes, const std::string& body) {
  return fmt::format(
      "<svg class=timeline role=img width={0} height={1} viewBox=\"0 0 {0} "
      "{1}\"><title>{2}</title>{3}</svg>\n",
      label_width + width + 10, static_cast<int>(lanes) * lane_height + 4, title, body);
}

std::string drawing_of(const RankTimeline& rank) {
  double begin = 0, end = 0;
  bool any = false;
  for (const Lane& lane : rank.lanes) {
    for (const Bar& bar : lane.bars) {
      begin = any ? std::min(begin, bar.begin) : bar.begin;
      end = any ? std::max(end, bar.begin + bar.duration) : bar.begin + bar.duration;
      any = true;
    }
  }
  if (!any || !(end > begin)) return "";
  auto x = [&](double at) {
    return label_width + std::clamp((at - begin) / (end - begin), 0.0, 1.0) * width;
  };
  std::string body;
  for (std::size_t i = 0; i < rank.lanes.size(); ++i) {
    const int top = static_cast<int>(i) * lane_height;
    body += label(rank.lanes[i].name, i);
    for (const Bar& bar : rank.lanes[i].bars) {
      const double from = x(bar.begin);
      body += fmt::format(
          "<rect x={:.1f} y={} width={:.1f} height={} fill=\"{}\"><title>{}: {:.3f} us at "
          "{:.3f}</title></rect>",
          from, top, std::max(1.0, x(bar.begin + bar.duration) - from), bar_height, colour_of_kind(bar.kind),
          escaped(bar.name), bar.duration, bar.begin);
    }
  }
  for (const Mark& mark : rank.marks) {
    if (mark.lane >= rank.lanes.size()) continue;
    body += fmt::format("<path class=found d=\"M{:.1f} {}v{}\"><title>{}: {}</title></path>", x(mark.at),
                        static_cast<int>(mark.lane) * lane_height - 2, lane_height, escaped(mark.code),
                        escaped(mark.text));
  }
  std::string caption = fmt::format("rank {}, {:.1f} to {:.1f} us", rank.rank, begin, end);
  if (rank.not_shown > 0) caption += fmt::format("; {} more operators are not shown", rank.not_shown);
  return svg("what ran when", rank.lanes.size(), body) + fmt::format("<p class=soft>{}</p>\n", caption);
}

std::string legend() {
  std::string text;
  for (const char* kind : {"compute", "collective", "copy"})
    text += fmt::format("<span style=\"color:{}\">\u25a0</span> {} ", colour_of_kind(kind), kind);
  return text + "<span class=bad>\u25a0</span> not ordered";
}

std::string of_trace(const Json& timeline) {
  std::string drawn;
  std::size_t ranks = 0;
  for (const Json& rank : timeline.at("ranks")) {
    if (++ranks > max_ranks) break;
    drawn += drawing_of(rank_of(rank));
  }
  if (drawn.empty()) return "";
  return fmt::format("{}<p class=soft>virtual time of {}: {}</p>\n", drawn,
                     escaped(timeline.at("machine").get<std::string>()), legend());
}

// The two sides, and nothing between them.
std::string of_finding(const Json& divergence) {
  const Json &earlier = divergence.at("earlier"), &later = divergence.at("later");
  const std::string lanes[] = {earlier.at("timeline").get<std::string>(),
                               later.at("timeline").get<std::string>()};
  const std::size_t later_lane = lanes[0] == lanes[1] ? 0 : 1;
  constexpr int bar = width / 3, second = label_width + 2 * bar;
  std::string body = label(lanes[0], 0);
  if (later_lane == 1) body += label(lanes[1], 1);
  auto access = [&](const Json& side, int x, std::size_t lane) {
    const int top = static_cast<int>(lane) * lane_height;
    return fmt::format("<rect class=access x={} y={} width={} height={} /><text x={} y={}>{} {}s</text>", x,
                       top, bar, bar_height, x + 4, top + bar_height - 3,
                       escaped(side.at("operation").get<std::string>()),
                       escaped(side.at("access").get<std::string>()));
  };
  body += access(earlier, label_width, 0) + access(later, second, later_lane);
  body += fmt::format("<path class=\"found gap\" d=\"M{} {}L{} {}\"><title>missing: {}</title></path>",
                      label_width + bar, bar_height / 2, second,
                      static_cast<int>(later_lane) * lane_height + bar_height / 2,
                      escaped(divergence.value("missing", "")));
  return svg("two accesses that nothing orders", later_lane + 1, body);
}

}  // namespace

std::string timeline_of(const Json& record) {
  try {
    if (record.contains("timeline")) return of_trace(record.at("timeline"));
    if (record.at("divergence").contains("earlier")) return of_finding(record.at("divergence"));
  } catch (const Json::exception&) {
  }
  return "";
}

}  // namespace fsdp_cts
