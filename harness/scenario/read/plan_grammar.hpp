// The keys of plans (LANGUAGE.md §4) as tables.
#pragma once

#include "harness/scenario/read/grammar.hpp"

namespace fsdp_cts {

const Fields& plan_fields();  // api, mesh, units; every other key of a plan is a default of its units
const std::vector<std::string>& plan_apis();
const Fields& unit_fields(std::string_view api);  // throws std::out_of_range for an unknown api
// What a plan of this API may hold: plan_fields() and its units' keys except `modules`.
const Fields& plan_and_unit_fields(std::string_view api);
const Fields& auto_wrap_fields();

}  // namespace fsdp_cts
