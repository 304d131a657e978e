#include <fmt/format.h>

#include "harness/judge/collectives.hpp"
#include "harness/judge/laws/laws.hpp"

namespace fsdp_cts {

void transport_carries_the_trace(const JudgeContext& context, Outcome& outcome) {
  if (!context.run.sent && !context.run.closed_connection) return;
  const Selection everything(Json::object(), context.program);
  std::vector<Finding> reported_elsewhere;
  double claimed = 0;
  const Collective* largest = nullptr;
  const auto all = traces(context, everything, reported_elsewhere);
  for (const Trace& trace : all) {
    for (const Collective& event : trace.events) {
      const double least = least_bytes_sent(event);
      claimed += least;
      if (least > 0 && (largest == nullptr || least > least_bytes_sent(*largest))) largest = &event;
    }
  }
  if (context.run.closed_connection) {
    if (claimed > 0) outcome.findings.push_back(transport_lost(*context.run.closed_connection));
    return;
  }
  const auto sent = static_cast<double>(*context.run.sent);
  if (sent < claimed) {
    Finding finding{
        VerdictKind::fail, "collectives_unseen",
        fmt::format(
            "the traces of all ranks together hold collectives that cannot be carried out with less than {} "
            "bytes, such as {}, and the kernel counted {} bytes sent on the ranks' sockets",
            claimed, describe(*largest), sent)};
    finding.divergence = {{"actual", sent}, {"expected", claimed}};
    outcome.findings.push_back(std::move(finding));
    return;
  }
  outcome.counts.witnessed = outcome.counts.collectives;
}

}  // namespace fsdp_cts
