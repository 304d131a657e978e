#pragma once
#include <memory>

#include "fsdp/comm/communicator.hpp"

namespace fsdp {

/// A group that answers rank and size and refuses to communicate (RuntimeError): enough to look at how a
/// model is wrapped. Its members are ranks 0 … size - 1. Any thread may call anything.
std::shared_ptr<Communicator> make_dummy_group(int64_t rank, int64_t size);

}  // namespace fsdp
