// Work on many files whose results do not depend on each other.
#pragma once

#include <cstddef>
#include <functional>

namespace fsdp_cts {

// Calls work(0) to work(count - 1), each once, on as many threads as the machine has cores (at most eight);
// returns when all are done. The first exception that a call throws is thrown again here, and work that no
// thread had begun by then may be left undone.
void side_by_side(std::size_t count, const std::function<void(std::size_t)>& work);

}  // namespace fsdp_cts
