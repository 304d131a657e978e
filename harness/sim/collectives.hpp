// Collectives of the device: those of a backend for the CPU, on streams.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace fsdp_cts::sim {

// `transport` carries the elements: Gloo, or any other backend for tensors of the CPU. With async_op the work runs
// on a stream that the group keeps for it, behind what is on the current stream, and Work.wait lets the current
// stream wait for it; without, it runs on the current stream. The call itself returns when the elements are
// there, so a wait that is missing shows as a finding and not in values.
//
// Every collective needs the other ranks of the group, in the same order. Throws what `transport` throws;
// c10::Error for tensors that are not on the device.
c10::intrusive_ptr<c10d::Backend> make_backend(c10::intrusive_ptr<c10d::Backend> transport);

}  // namespace fsdp_cts::sim
