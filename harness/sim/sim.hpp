// A simulated accelerator: device type `sim` on PyTorch's PrivateUse1.
//
// Operators run at once, on the CPU's kernels and on memory that is the host's, so values equal the CPU's bit
// for bit. What is simulated is order: every operator, copy and collective belongs to a stream, and each access
// of memory is checked for happens-before. A program that would be right only by luck on hardware is convicted
// here every time.
//
//   at::Tensor x = at::ones({2}, at::Device("sim"));
//   ...
//   for (const Finding& finding : fsdp_cts::sim::drain_findings()) ...
//
// Linking the library registers the device; a program that names none of the functions below calls
// `register_device()` so that the linker keeps it. Python: `import fsdp_sim`.
//
// Rules, and where they come from:
// - Streams, events, record_stream, pinned memory and blocking copies order as CUDA's do in PyTorch ("CUDA
//   semantics" in its documentation): a copy with non_blocking to or from pinned memory returns before it is
//   done, one into pageable memory after; a blocking copy waits for the current stream and no other.
// - Memory belongs to the stream it was allocated on, and is that stream's again as soon as it is freed
//   (Tensor.record_stream's documentation).
// - A collective with async_op=True runs on a stream of its process group, behind what was on the current stream
//   when it was called, and the current stream waits for it in Work.wait; with async_op=False it runs on the
//   current stream (torch.distributed's documentation of CUDA collectives; PyTorch 2.11's ProcessGroupNCCL).
//
// Limits: accesses through data_ptr and numpy are not seen, unless told (`host_access`). The bytes of a view are
// those from its first to its last element. The threads of the host count as one. Units: bytes.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fsdp_cts::sim {

inline constexpr c10::DeviceType device_type = c10::DeviceType::PrivateUse1;

// Does nothing more than loading the library has done. Throws c10::Error where another library has taken
// PrivateUse1 under another name.
void register_device();

enum class FindingKind {
  stream_race,          // two accesses that nothing orders, on two streams, or on a stream and then the host
  use_after_free,       // memory that may be handed out again while a stream still uses it
  host_read_unfinished  // the host reads what a stream may not have written yet
};
const char* finding_code(FindingKind kind);  // "stream_race", …

// One of the two accesses of a finding.
struct FindingSide {
  std::string operation;  // "aten::mm.out", "c10d::_allgather_base_", …
  std::string scope;      // the innermost record_function around it, or ""
  std::string timeline;   // "host", "default stream of sim:0", "stream 3 of sim:0", or its name
  bool write = false;
};

struct Finding {
  FindingKind kind = FindingKind::stream_race;
  FindingSide earlier;
  FindingSide later;
  std::string buffer;     // its name, or what first wrote it
  std::size_t bytes = 0;  // of the buffer
  std::string missing;    // the wait that would order the two
  std::uint64_t times = 1;
};
std::string describe(const Finding& finding);  // one sentence

// What was found since the last call, in the order in which it was first seen; equal ones once, counted.
std::vector<Finding> drain_findings();

// An operator of the program's own, as a kernel or a collective is, on the current stream of the device that the
// tensors are on. `work` does it, at once and on the host, where it takes the tensors by `on_cpu`; what it calls
// there is not noted again. Throws what `work` throws; c10::Error where a tensor is not on the device.
void launch(const std::string& operation, const std::vector<at::Tensor>& reads,
            const std::vector<at::Tensor>& writes, const std::function<void()>& work);

// The same elements as a tensor of the CPU; tensors of one storage get tensors of one storage. It does not keep
// the memory alive. For `launch`: elsewhere nobody sees what is done to it.
at::Tensor on_cpu(const at::Tensor& tensor);

// Operators, copies and collectives launched since the process began: a program that launches none does not use
// the device.
std::uint64_t launches();

// While one lives, no access is noted, and no copy or `item` makes the host wait: for whoever looks at a program
// from outside and must not bring order into it. Explicit waits count as ever. Of the whole process.
class Unobserved {
 public:
  Unobserved();
  ~Unobserved();
  Unobserved(const Unobserved&) = delete;
  Unobserved& operator=(const Unobserved&) = delete;
};

// How findings call it. Tensors of one storage share a name.
void name_buffer(const at::Tensor& tensor, std::string name);
void name_stream(c10::Stream stream, std::string name);

// Code on the host that reads or writes pinned memory past PyTorch's operators.
void host_access(const at::Tensor& tensor, bool write, const std::string& operation);

// Of one device, in bytes. An allocation beyond it throws c10::OutOfMemoryError (torch.OutOfMemoryError), after
// waiting for what record_stream still holds. Without a limit a device has 80 GiB. Throws c10::Error where more
// than `bytes` is allocated already, or where there is no such device.
void set_memory_limit(c10::DeviceIndex device, std::size_t bytes);

}  // namespace fsdp_cts::sim
