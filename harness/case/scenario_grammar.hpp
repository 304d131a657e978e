// The keys of scenario and model files (LANGUAGE.md §1, §3, §4, §5) as tables.
#pragma once

#include "harness/case/grammar.hpp"

namespace fsdp_cts {

const Fields& scenario_fields();
const Fields& model_file_fields();
const Fields& repeated_child_fields();
const Fields& seed_method_fields();  // an entry of seeds.yaml

const Fields& data_fields();
const Fields& input_fields();
const Fields& parameter_data_fields();

const Fields& plan_fields();  // api, mesh, units; every other key of a plan is a default of its units
const std::vector<std::string>& plan_apis();
const Fields& unit_fields(std::string_view api);  // throws std::out_of_range for an unknown api
// What a plan of this API may hold: plan_fields() and its units' keys except `modules`.
const Fields& plan_and_unit_fields(std::string_view api);
const Fields& auto_wrap_fields();

}  // namespace fsdp_cts
