#include <fmt/format.h>

#include <algorithm>

#include "harness/judge/entries.hpp"
#include "harness/judge/laws/laws.hpp"

namespace fsdp_cts {
namespace {

constexpr const char* clause = "G-11";

// A case about wrapping alone computes nothing on any device.
bool computes(const JudgeContext& context) {
  return std::any_of(context.a_case.program.begin(), context.a_case.program.end(),
                     [](const Json& step) { return step.value("verb", "") == "forward"; });
}

void check_used(const JudgeContext& context, Outcome& outcome) {
  if (context.run.hello.value("device", "") != "sim" || !computes(context)) return;
  for (const RankReport& rank : context.run.ranks) {
    if (rank.launches.value_or(0) > 0 || context.program.ends(rank.rank)) continue;
    Finding finding{
        VerdictKind::fail, "device_unused",
        fmt::format("rank {} says that it runs on device sim, and {}: nothing of it was watched", rank.rank,
                    rank.launches ? "the device was given no operator in this case"
                                  : "does not say how many operators the device was given")};
    finding.divergence = {{"clause", clause}, {"rank", rank.rank}, {"actual", rank.launches.value_or(0)}};
    outcome.findings.push_back(std::move(finding));
    return;
  }
}

}  // namespace

void device_work_is_ordered(const JudgeContext& context, Outcome& outcome) {
  check_used(context, outcome);
  for (const DeviceFinding& found : context.run.findings) {
    Place place{found.step, "device", "", "", found.rank};
    Finding finding = broken_law(clause, found.code, place, context.program,
                                 fmt::format("rank {}: {}", found.rank, found.message.value("text", "")));
    for (const char* key : {"earlier", "later", "buffer", "bytes", "missing", "times"}) {
      if (const auto at = found.message.find(key); at != found.message.end()) finding.divergence[key] = *at;
    }
    outcome.findings.push_back(std::move(finding));
  }
}

}  // namespace fsdp_cts
