#pragma once
// The streams on which the library communicates beside compute, for whoever looks at them: a profiler or a
// checker of races shows them by name.
#include <c10/core/Stream.h>

#include <functional>

namespace fsdp {

using StreamNamer = std::function<void(c10::Stream stream, const char* name)>;
/// Called for each stream that the library takes from an accelerator's pool, by whoever runs the first forward:
/// "all_gather_copy_in_stream", "all_gather_stream", "reduce_scatter_stream", "all_reduce_stream" (fully_shard);
/// "pre_unshard_stream", "unshard_stream", "post_backward_stream", "all_reduce_stream" (FSDP1), as PyTorch names its
/// own, and FSDP1's "pre_reduce_stream", which PyTorch does not have. A pool gives a stream out again, so one may get
/// two names. To be set before the first forward, by one thread.
void set_stream_namer(StreamNamer name);

}  // namespace fsdp
