#include <fmt/format.h>

#include "harness/judge/laws/laws.hpp"

namespace fsdp_cts {

void device_memory_is_given_back(const JudgeContext& context, Outcome& outcome) {
  for (const RankReport& rank : context.run.ranks) {
    const long kept = rank.kept_bytes.value_or(0);
    if (kept <= 0) continue;
    Finding finding{
        VerdictKind::fail, "memory_kept",
        fmt::format("rank {} has {} bytes more on the device than when the case began, and nothing "
                    "of the case is left",
                    rank.rank, kept)};
    finding.divergence = {{"clause", "G-12"}, {"rank", rank.rank}, {"actual", kept}, {"expected", 0}};
    outcome.findings.push_back(std::move(finding));
    return;
  }
}

}  // namespace fsdp_cts
