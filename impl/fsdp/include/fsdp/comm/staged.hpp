#pragma once
// Collectives of an accelerator's tensors, carried by a group of the CPU through pinned memory: several ranks may share
// one device, and any backend of the CPU serves an accelerator.
#include <memory>

#include "fsdp/comm/communicator.hpp"

namespace fsdp {

/// A group of the same ranks as `carrier`, for tensors on `device`. Its inputs are copied to pinned memory on the stream
/// that is current when a collective is issued, the carrier does its work on them, and the results are copied back on
/// that stream. On CUDA the host waits for nothing: a thread of the group drives the carrier, and until it is done the
/// stream stands still, as it would for NCCL. On other accelerators the issuing thread waits for the carrier.
///
/// Reductions and their order are the carrier's; premul_sum is carried out in pinned memory, as a factor and a sum.
/// A carrier that fails lets the stream go on, on results that are not there: the next call of the group or
/// `Work::wait` throws what went wrong. Throws InvalidArgument where `device` is a CPU, and RuntimeError where CUDA's
/// driver cannot let a stream wait for a host (before 11.7, or not there).
std::shared_ptr<Communicator> make_staged_communicator(std::shared_ptr<Communicator> carrier,
                                                       at::Device device);

}  // namespace fsdp
