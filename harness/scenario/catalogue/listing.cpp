#include "harness/scenario/catalogue/listing.hpp"

#include "harness/scenario/case.hpp"

namespace fsdp_cts {

std::vector<ListingRow> list_cases(const std::vector<Case>& cases, const Machine& machine) {
  std::vector<ListingRow> rows;
  rows.reserve(cases.size());
  for (const Case& a_case : cases) {
    const std::optional<std::string> obstacle = why_not_runnable(a_case, machine);
    rows.push_back({a_case.id, a_case.scenario, a_case.seed, a_case.world,
                    std::string(lane_name(a_case.lane)), a_case.requires_, !obstacle, obstacle.value_or(""),
                    a_case.seed_cases, a_case.cpu_form, a_case.continues, a_case.clauses});
  }
  return rows;
}

Json listing_json(const std::vector<ListingRow>& rows) {
  Json result = Json::array();
  for (const ListingRow& row : rows)
    result.push_back({{"id", row.id},
                      {"scenario", row.scenario},
                      {"seed", row.seed},
                      {"world", row.world},
                      {"lane", row.lane},
                      {"requires", row.requires_},
                      {"runnable", row.runnable},
                      {"reason", row.reason},
                      {"seed_cases", row.seed_cases},
                      {"cpu_form", row.cpu_form},
                      {"continues", row.continues},
                      {"clauses", row.clauses}});
  return result;
}

}  // namespace fsdp_cts
