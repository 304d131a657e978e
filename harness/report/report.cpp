#include "harness/report/report.hpp"

#include <fmt/format.h>

#include "harness/case/listing.hpp"

namespace fsdp_cts {

Json case_record(const Case& a_case, const Verdict& verdict, const std::string& repeat,
                 const std::string& note) {
  const Counts& counts = verdict.counts;
  Json record{{"type", "case"},
              {"id", a_case.id},
              {"scenario", a_case.scenario},
              {"seed", a_case.seed},
              {"method", a_case.method},
              {"world", a_case.world},
              {"lane", lane_name(a_case.lane)},
              {"requires", a_case.requires_},
              {"seed_cases", a_case.seed_cases},
              {"clauses", a_case.clauses},
              {"why", a_case.why},
              {"source", a_case.source},
              {"quirks", a_case.quirks},
              {"verdict", verdict_name(verdict.kind)},
              {"code", verdict.code},
              {"summary", verdict.summary},
              {"divergence", verdict.divergence.is_null() ? Json::object() : verdict.divergence},
              {"counts",
               {{"elements", counts.elements},
                {"exact_elements", counts.exact_elements},
                {"tensors", counts.tensors},
                {"collectives", counts.collectives},
                {"checks", counts.checks},
                {"ranks", counts.ranks}}},
              {"max_ulp", verdict.max_ulp},
              {"seconds", verdict.seconds},
              {"repeat", repeat}};
  if (!a_case.cpu_form.empty()) record["cpu_form"] = a_case.cpu_form;
  if (!note.empty()) record["note"] = note;
  return record;
}

Json count_verdicts(const std::vector<Json>& records) {
  std::map<VerdictKind, int> counts;
  for (const Json& record : records) ++counts[verdict_from_name(record.at("verdict").get<std::string>())];
  Json result = Json::object();
  for (const auto& [kind, count] : counts) result[std::string(verdict_name(kind))] = count;
  return result;
}

int exit_code(const Json& verdicts) {
  bool any = false, judged = false;
  for (const auto& [name, count] : verdicts.items()) {
    if (count.get<int>() == 0) continue;
    any = true;
    const VerdictKind kind = verdict_from_name(name);
    if (kind == VerdictKind::pass || kind == VerdictKind::xfail) {
      judged = true;
    } else if (kind != VerdictKind::skipped && kind != VerdictKind::unsupported) {
      return 1;
    }
  }
  return !any ? 2 : judged ? 0 : 77;
}

Json sum_counts(const std::vector<Json>& records) {
  Json sums{{"elements", 0}, {"exact_elements", 0}, {"tensors", 0}, {"collectives", 0}, {"checks", 0}};
  for (const Json& record : records) {
    for (auto& [key, sum] : sums.items()) sum = sum.get<long>() + record.at("counts").value(key, 0L);
  }
  return sums;
}

}  // namespace fsdp_cts
