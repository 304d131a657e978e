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
// - Virtual time, where a machine is chosen (`set_machine`): the host and every stream have a clock. An operator
//   begins when its stream is free and the host has launched it, and takes what the machine's figures say
//   (machines.hpp); events, waits and synchronisation hand times on as they hand on order. Nothing of it depends
//   on how fast the program really runs, so the same program has the same times, everywhere.
//
// Limits: accesses through data_ptr and numpy are not seen, unless told (`host_access`). The bytes of a view are
// those from its first to its last element. The threads of the host count as one. Units: bytes.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace fsdp_cts::sim {

inline constexpr c10::DeviceType device_type = c10::DeviceType::PrivateUse1;

// Loading the library has registered it already; this reads the environment (FSDP_SIM_MACHINE, FSDP_SIM_TRACE,
// FSDP_SIM_MEMORY). Throws c10::Error where that cannot be followed, or where another library has taken
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

// The host stood still until the device, a stream or an event had come to its end. What it had seen end before is none.
struct HostWait {
  std::string
      operation;  // "synchronize a stream", "synchronize the device", "synchronize an event", "allocate", or
                  // the operator or copy that hands values to the host
  std::string scope;  // the innermost record_function around it, or ""
  std::uint64_t times = 1;
};
// Since the last call, in the order in which they were first seen; equal ones once, counted.
std::vector<HostWait> drain_host_waits();

// An operator of the program's own, as a kernel or a collective is, on the current stream of the device that the
// tensors are on. `work` does it, at once and on the host, where it takes the tensors by `on_cpu`; what it calls
// there is not noted again. Throws what `work` throws; c10::Error where a tensor is not on the device.
void launch(const std::string& operation, const std::vector<at::Tensor>& reads,
            const std::vector<at::Tensor>& writes, const std::function<void()>& work);

// What a collective's virtual time depends on; bytes are those of its tensors.
enum class Pattern {
  all_gather,  // and reduce-scatter, gather, scatter: all but a rank's own part goes around once
  all_reduce,  // both of them, one after the other
  broadcast    // and reduce: everything goes around once
};
struct Collective {
  Pattern pattern = Pattern::all_gather;
  int ranks = 1;
  // Answers the largest of the numbers that the ranks of the group give. Called once for each collective, by
  // every rank, and only where a machine is chosen: which therefore all ranks do, or none.
  std::function<std::int64_t(std::int64_t)> largest;
};
// As `launch`. In virtual time it begins when the last rank has come to it.
void launch_collective(const std::string& operation, const std::vector<at::Tensor>& reads,
                       const std::vector<at::Tensor>& writes, const Collective& collective,
                       const std::function<void()>& work);

// The same elements as a tensor of the CPU; tensors of one storage get tensors of one storage. It does not keep
// the memory alive. For `launch`: elsewhere nobody sees what is done to it.
at::Tensor on_cpu(const at::Tensor& tensor);

// Operators, copies and collectives launched since the process began: a program that launches none does not use
// the device.
std::uint64_t launches();

// While one lives, no access is noted, and no copy or `item` makes the host wait: for whoever looks at a program
// from outside and must not bring order into it. Explicit waits order as ever; virtual time stands still. Of the
// whole process.
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
// FSDP_SIM_MEMORY of the environment, in bytes, limits every device from the start.
void set_memory_limit(c10::DeviceIndex device, std::size_t bytes);

// What the program holds of a device, in bytes as it asked for them, unrounded.
struct MemoryHeld {
  std::size_t now = 0;
  std::size_t peak = 0;  // since the last call
};
// Throws c10::Error where there is no such device.
MemoryHeld memory_held(c10::DeviceIndex device);

// From now on virtual time passes as on this machine; "": none passes. At first FSDP_SIM_MACHINE of the environment
// says which. Throws c10::Error, with the table, for a name that is not in it.
void set_machine(const std::string& name);
std::string machine();  // "" where none is chosen

// What is put on the stream from now on comes so much later, as after an operator that takes this long, and counts
// as one. Orders nothing. Without a machine, and for negative durations: nothing.
void delay_stream(c10::Stream stream, std::chrono::nanoseconds duration);

// A stretch of the program in virtual time, on all devices of this process.
struct StepNumbers {
  std::chrono::nanoseconds duration{};  // as the host sees it, when all streams have come to their end
  std::chrono::nanoseconds compute{};   // in which any operator ran, copies between host and device apart
  std::chrono::nanoseconds communication{};          // in which any collective ran
  std::chrono::nanoseconds exposed_communication{};  // of these, in which no operator ran
  std::vector<std::size_t> peak_memory;  // by device: bytes that could not be handed out again, at most
};
// A stretch begins: the host's clock moves on to that of the last stream. Orders nothing.
void mark();
// Since the last `mark`. The host's clock moves on as in `mark`. Throws c10::Error without one, or without a machine.
StepNumbers since_mark();

// What runs from now on goes into a file for chrome://tracing and Perfetto: a process per rank (RANK of the
// environment), a lane per stream, findings as instants. Folders are made. FSDP_SIM_TRACE=<folder> begins one,
// <folder>/rank<N>.json, at the start, which is written when the process exits normally.
// Throws c10::Error without a machine, std::runtime_error where folders cannot be made.
void begin_trace(const std::filesystem::path& file);
// As begin_trace with <FSDP_SIM_TRACE>/<part>/rank<N>.json: for programs of many parts. Virtual
// time is 0 again, so that a part has the same times whatever was before it: call it where nothing is unfinished.
// Without FSDP_SIM_TRACE: nothing.
void begin_trace_of(const std::string& part);
// What has run so far, whole or not at all; nothing where no trace was begun. Throws std::runtime_error where the file
// cannot be written.
void write_trace();
void end_trace();  // write_trace, and no more

}  // namespace fsdp_cts::sim
