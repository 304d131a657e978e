// Where each element of a parameter must lie, by the rules of the specification (clauses FS-SHARD-1 and
// FP-FLAT-1).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/judge/evidence.hpp"

namespace fsdp_cts {

// Pieces one rank of a shard group must hold, sorted and merged where they touch.
std::vector<Piece> merged(std::vector<Piece> pieces);

// Per-parameter sharding along `dim`: torch.chunk, then empty chunks. Rank r of `ranks` holds rows [r*c,
// (r+1)*c) with c = ceil(size / ranks), as far as there are rows.
std::vector<Piece> chunk_pieces(const std::vector<std::int64_t>& shape, std::int64_t dim, int rank,
                                int ranks);

struct FlatMember {
  std::string name;
  std::int64_t numel = 0;
};
// A flat parameter over `members` in order. With `alignment` (elements; 0 for none) each member starts at a
// multiple of it and the end is filled up to a multiple of `ranks`; without, the flat tensor is chunked and
// the last chunks are short. Result: what rank `rank` holds of each member.
std::map<std::string, std::vector<Piece>> flat_pieces(const std::vector<FlatMember>& members,
                                                      std::int64_t alignment, int rank, int ranks);

}  // namespace fsdp_cts
