// The tensor of a failed comparison as a drawing: which elements differ, and where the shards of the ranks lie.
#pragma once

#include <string>

#include "harness/report/report.hpp"

namespace fsdp_cts {

// HTML for `tensor` of a divergence (Verdict::divergence): rows are the tensor's first dimension, columns all
// others; a vector is broken into lines. Large tensors are drawn in blocks, in which one element that differs
// colours the block. Empty for what is no such map, and for a tensor of more than 2^24 elements: reports come
// from anywhere.
std::string drawing_of(const Json& tensor);

}  // namespace fsdp_cts
