// The published JSON Schemas (conformance/schema/), made from the same tables that the loader checks with.
#pragma once

#include "harness/scenario/case.hpp"

namespace fsdp_cts {

Json scenario_schema();  // of conformance/scenarios/**.yaml
Json model_schema();     // of conformance/models/*.yaml

}  // namespace fsdp_cts
