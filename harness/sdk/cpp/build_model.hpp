// From a resolved description and the case's data to a model.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "harness/sdk/cpp/case.hpp"
#include "harness/sdk/cpp/data.hpp"
#include "harness/sdk/cpp/module.hpp"
#include "harness/sdk/cpp/recorder.hpp"

namespace fsdp_cts::sdk {

// The instance with the initial values of the data file (`parameters/<instance>/<name>`, `buffers/…`; a
// rank's own values win). On the meta device only shapes. Throws std::invalid_argument for an unknown type or
// a missing or misshapen value.
std::shared_ptr<Module> build_model(const Json& description, const Data& data, const std::string& instance,
                                    c10::Device device, std::shared_ptr<Recorder> recorder);

}  // namespace fsdp_cts::sdk
