#include "harness/case/listing.hpp"

namespace fsdp_cts {

std::string_view lane_name(Lane lane) {
  switch (lane) {
    case Lane::exact:
      return "exact";
    case Lane::tolerance:
      return "tolerance";
    case Lane::structure:
      return "structure";
  }
  throw std::logic_error("a lane that does not exist");
}

std::vector<ListingRow> list_cases(const std::vector<Case>& cases, const Machine& machine) {
  std::vector<ListingRow> rows;
  rows.reserve(cases.size());
  for (const Case& a_case : cases) {
    const std::optional<std::string> obstacle = why_not_runnable(a_case, machine);
    rows.push_back({a_case.id, a_case.scenario, a_case.seed, a_case.world,
                    std::string(lane_name(a_case.lane)), a_case.requires_, !obstacle, obstacle.value_or(""),
                    a_case.seed_cases, a_case.cpu_form});
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
                      {"cpu_form", row.cpu_form}});
  return result;
}

}  // namespace fsdp_cts
