// How much memory of the CPU's tensors a simulated rank takes in a step: what the model itself takes, where nothing is
// sharded and nothing sent. On the device a testee may have that much, and what its units add (clause G-14).
#pragma once

#include <cstdint>
#include <optional>

namespace fsdp_cts::reference {

struct MemoryUse {
  std::int64_t begin_bytes = 0;
  std::int64_t peak_bytes = 0;
};

// From now on memory of tensors is counted, before, nothing of it. To be called before there is any.
void count_memory();

// Of all tensors of the process, from its construction on.
class MemoryOfStep {
 public:
  MemoryOfStep();
  std::optional<MemoryUse> use() const;  // nothing where nobody counts

 private:
  std::int64_t begin_ = 0;
};

}  // namespace fsdp_cts::reference
