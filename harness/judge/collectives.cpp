#include "harness/judge/collectives.hpp"

#include <fmt/format.h>

namespace fsdp_cts {
namespace {

std::string text_or_empty(const Json& event, const char* key) {
  auto found = event.find(key);
  return found == event.end() || !found->is_string() ? "" : found->get<std::string>();
}

Collective read_event(const Json& event) {
  Collective result;
  result.op = event.at("op").get<std::string>();
  result.phase = text_or_empty(event, "phase");
  if (auto unit = event.find("unit"); unit != event.end() && unit->is_string())
    result.unit = unit->get<std::string>();
  if (result.op == "compute") return result;
  result.dtype = event.at("dtype").get<std::string>();
  result.reduce_op = text_or_empty(event, "reduce_op");
  result.in_numel = event.at("in_numel").get<std::int64_t>();
  result.out_numel = event.at("out_numel").get<std::int64_t>();
  result.group = event.at("group").get<std::vector<int>>();
  return result;
}

}  // namespace

std::vector<Trace> traces(const JudgeContext& context, const Selection& selection,
                          std::vector<Finding>& findings) {
  std::vector<Trace> result;
  for (const auto& [place, fact] : selected_facts(context, selection, "trace")) {
    Trace trace{place, {}, {}};
    try {
      for (const Json& event : fact->at("events")) {
        trace.with_compute.push_back(read_event(event));
        if (trace.with_compute.back().op != "compute") trace.events.push_back(trace.with_compute.back());
      }
    } catch (const std::exception& error) {
      findings.push_back(failure(context, place,
                                 {"malformed_entry", fmt::format("{}: an event cannot be read ({})",
                                                                 describe(place), error.what())}));
    }
    result.push_back(std::move(trace));
  }
  return result;
}

double bytes_sent(const Collective& event) {
  const double size = static_cast<double>(dtype_size(dtype_from_name(event.dtype)));
  const double world = static_cast<double>(event.group.size());
  const double share = world == 0 ? 0 : (world - 1) / world;
  if (event.op == "all_gather") return static_cast<double>(event.out_numel) * size * share;
  if (event.op == "reduce_scatter") return static_cast<double>(event.in_numel) * size * share;
  if (event.op == "all_reduce") return 2 * static_cast<double>(event.in_numel) * size * share;
  return static_cast<double>(event.in_numel) * size;
}

double least_bytes_sent(const Collective& event) {
  if (event.op == "other" || event.group.empty()) return 0;
  const double world = static_cast<double>(event.group.size());
  return event.op == "broadcast" ? bytes_sent(event) * (world - 1) / world : bytes_sent(event);
}

Finding transport_lost(int rank) {
  return {VerdictKind::unresolved, "transport_lost",
          fmt::format(
              "rank {} has closed a connection during the case, and with it the kernel's count of what it "
              "sent, by which its collectives are checked; keep connections open while a case runs",
              rank)};
}

std::string describe(const Collective& event) {
  return fmt::format("{}({}{}{}, {} -> {}, ranks {}{}{})", event.op, event.dtype,
                     event.reduce_op.empty() ? "" : ", ", event.reduce_op, event.in_numel, event.out_numel,
                     fmt::join(event.group, ","), event.phase.empty() ? "" : ", in ", event.phase);
}

}  // namespace fsdp_cts
