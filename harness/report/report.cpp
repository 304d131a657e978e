#include "harness/report/report.hpp"

#include <fmt/format.h>

#include <set>

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
              {"fingerprint", fingerprint(a_case)},
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
                {"witnessed", counts.witnessed},
                {"checks", counts.checks},
                {"ranks", counts.ranks},
                {"truths",
                 {{"reference", counts.truths.reference},
                  {"golden", counts.truths.golden},
                  {"golden_left_out", counts.truths.golden_left_out}}}}},
              {"max_ulp", verdict.max_ulp},
              {"max_noise", verdict.max_noise},
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
    } else if (kind != VerdictKind::skipped) {
      return 1;
    }
  }
  return !any ? 2 : judged ? 0 : 77;
}

namespace {

Json nothing_counted() {
  return {{"elements", 0},    {"exact_elements", 0},
          {"tensors", 0},     {"collectives", 0},
          {"witnessed", 0},   {"checks", 0},
          {"cases", 0},       {"numeric_cases", 0},
          {"exact_cases", 0}, {"truths", {{"reference", 0}, {"golden", 0}, {"golden_left_out", 0}}}};
}

void add_to(Json& sums, const std::string& key, long more) {
  sums[key] = sums[key].get<long>() + more;
}

void add_record(Json& sums, const Json& record) {
  const Json& counts = record.at("counts");
  for (const char* key : {"elements", "exact_elements", "tensors", "collectives", "witnessed", "checks"})
    add_to(sums, key, counts.value(key, 0L));
  const Json truths = counts.value("truths", Json::object());
  for (const char* key : {"reference", "golden", "golden_left_out"})
    add_to(sums["truths"], key, truths.value(key, 0L));
  const std::string lane = record.at("lane").get<std::string>();
  add_to(sums, "cases", 1);
  add_to(sums, "numeric_cases", lane == "structure" ? 0 : 1);
  add_to(sums, "exact_cases", lane == "exact" ? 1 : 0);
}

}  // namespace

Json sum_counts(const std::vector<Json>& records) {
  Json sums = nothing_counted(), distinct = nothing_counted();
  std::set<std::string> programs;
  for (const Json& record : records) {
    const VerdictKind kind = verdict_from_name(record.at("verdict").get<std::string>());
    if (kind == VerdictKind::skipped || kind == VerdictKind::unsupported) continue;
    // Announced as unsupported, or ended before there was anything to judge.
    if (record.at("counts").value("checks", 0L) == 0) continue;
    add_record(sums, record);
    // A report of an earlier version names no program: there every case counts as one of its own.
    if (programs.insert(record.value("fingerprint", record.at("id").get<std::string>())).second)
      add_record(distinct, record);
  }
  sums["distinct"] = std::move(distinct);
  return sums;
}

}  // namespace fsdp_cts
