// The keys of scenario and model files (LANGUAGE.md §1, §3, §4, §5) as tables.
#pragma once

#include "harness/scenario/read/grammar.hpp"

namespace fsdp_cts {

const Fields& scenario_fields();
const Fields& model_file_fields();
const Fields& repeated_child_fields();
const Fields& seed_method_fields();    // an entry of seeds.yaml
const Fields& upstream_area_fields();  // an entry of upstream.yaml

const Fields& data_fields();
const Fields& input_fields();
const Fields& parameter_data_fields();

}  // namespace fsdp_cts
