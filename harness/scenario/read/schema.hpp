// The published JSON Schemas (conformance/schema/), made from the same tables that the loader checks with.
#pragma once

#include <string>

#include "harness/scenario/case.hpp"

namespace fsdp_cts {

Json scenario_schema();  // of conformance/scenarios/**.yaml
Json model_schema();     // of conformance/models/*.yaml

// As it is published: indented, what fits on one line.
std::string schema_text(const Json& schema);

}  // namespace fsdp_cts
