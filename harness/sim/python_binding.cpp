// What the package fsdp_sim needs beyond what torch.Stream, torch.Event and torch.accelerator offer already.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "harness/sim/collectives.hpp"
#include "harness/sim/memory.hpp"
#include "harness/sim/sim.hpp"
#include "harness/sim/streams.hpp"

namespace sim = fsdp_cts::sim;
namespace py = pybind11;

namespace {

py::dict as_dict(const sim::FindingSide& side) {
  py::dict made;
  made["operation"] = side.operation;
  made["scope"] = side.scope;
  made["timeline"] = side.timeline;
  made["access"] = side.write ? "write" : "read";
  return made;
}

py::list drain_findings() {
  py::list all;
  for (const sim::Finding& finding : sim::drain_findings()) {
    py::dict made;
    made["code"] = sim::finding_code(finding.kind);
    made["text"] = sim::describe(finding);
    made["earlier"] = as_dict(finding.earlier);
    made["later"] = as_dict(finding.later);
    made["buffer"] = finding.buffer;
    made["bytes"] = finding.bytes;
    made["missing"] = finding.missing;
    made["times"] = finding.times;
    all.append(made);
  }
  return all;
}

py::list drain_host_waits() {
  py::list all;
  for (const sim::HostWait& wait : sim::drain_host_waits()) {
    py::dict made;
    made["operation"] = wait.operation;
    made["scope"] = wait.scope;
    made["times"] = wait.times;
    all.append(made);
  }
  return all;
}

void name_stream(std::int64_t id, c10::DeviceIndex device, const std::string& name) {
  sim::name_stream(c10::Stream(c10::Stream::UNSAFE, c10::Device(sim::device_type, device), id), name);
}

void delay_stream(std::int64_t id, c10::DeviceIndex device, std::int64_t nanoseconds) {
  sim::delay_stream(c10::Stream(c10::Stream::UNSAFE, c10::Device(sim::device_type, device), id),
                    std::chrono::nanoseconds(nanoseconds));
}

py::dict since_mark() {
  const sim::StepNumbers numbers = sim::since_mark();
  py::dict made;
  made["duration"] = numbers.duration.count();
  made["compute"] = numbers.compute.count();
  made["communication"] = numbers.communication.count();
  made["exposed_communication"] = numbers.exposed_communication.count();
  made["peak_memory"] = numbers.peak_memory;
  return made;
}

}  // namespace

PYBIND11_MODULE(_binding, module) {
  sim::register_device();
  py::module_::import("torch.distributed");  // has the classes that come and go here
  module.def("drain_findings", &drain_findings);
  module.def("drain_host_waits", &drain_host_waits);
  module.def("launches", &sim::launches);
  module.def("suspend", [] { sim::Checker::instance().suspend(); });
  module.def("resume", [] { sim::Checker::instance().resume(); });
  module.def("name_buffer", &sim::name_buffer);
  module.def("name_stream", &name_stream);
  module.def("host_access", &sim::host_access);
  module.def("set_memory_limit", &sim::set_memory_limit);
  module.def("memory_info",
             [](c10::DeviceIndex device) { return sim::device_allocator().getMemoryInfo(device); });
  module.def("memory_held", [](c10::DeviceIndex device) {
    const sim::MemoryHeld held = sim::memory_held(device);
    return std::pair(held.now, held.peak);
  });
  module.def("device_count", [] { return static_cast<int>(sim::device_count()); });
  module.def("set_machine", &sim::set_machine);
  module.def("machine", &sim::machine);
  module.def("delay_stream", &delay_stream);
  module.def("mark", &sim::mark);
  module.def("since_mark", &since_mark);
  module.def("begin_trace", [](const std::string& file) { sim::begin_trace(file); });
  module.def("begin_trace_of", &sim::begin_trace_of);
  module.def("write_trace", &sim::write_trace);
  module.def("end_trace", &sim::end_trace);
  module.def("make_backend", &sim::make_backend);
}
