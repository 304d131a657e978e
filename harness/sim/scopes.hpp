// What the program is doing now, in its own words, and what the host does to pinned memory: both are seen by
// callbacks that PyTorch offers to profilers.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <string_view>

namespace fsdp_cts::sim {

// Neither autograd nor a profiler nor what Python has put into the dispatcher is to see how the device computes.
struct InsideTheDevice {
  at::AutoDispatchBelowADInplaceOrView autograd;
  c10::impl::ExcludeDispatchKeyGuard modes{c10::python_ks};
  at::DisableRecordFunctionGuard profilers;
};

// The innermost record_function range of this thread, or "".
std::string_view scope();

// From the first call on, operators of the CPU are watched for what they do to pinned memory.
void watch_the_host();

}  // namespace fsdp_cts::sim
