#include "harness/judge/expectations/layout_rules.hpp"

#include <algorithm>

namespace fsdp_cts {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
std::int64_t round_up(std::int64_t a, std::int64_t multiple) {
  return ceil_div(a, multiple) * multiple;
}

}  // namespace

std::vector<Piece> merged(std::vector<Piece> pieces) {
  std::erase_if(pieces, [](const Piece& piece) { return piece.length == 0; });
  std::sort(pieces.begin(), pieces.end());
  std::vector<Piece> result;
  for (const Piece& piece : pieces) {
    if (!result.empty() && result.back().offset + result.back().length == piece.offset) {
      result.back().length += piece.length;
    } else {
      result.push_back(piece);
    }
  }
  return result;
}

std::vector<Piece> chunk_pieces(const std::vector<std::int64_t>& shape, std::int64_t dim, int rank,
                                int ranks) {
  if (shape.empty()) return rank == 0 ? std::vector<Piece>{{0, 1}} : std::vector<Piece>{};
  const auto at = static_cast<std::size_t>(dim);
  std::int64_t before = 1, after = 1;
  for (std::size_t i = 0; i < at; ++i) before *= shape[i];
  for (std::size_t i = at + 1; i < shape.size(); ++i) after *= shape[i];
  const std::int64_t chunk = ceil_div(shape[at], ranks);
  const std::int64_t first = std::min(rank * chunk, shape[at]);
  const std::int64_t last = std::min(first + chunk, shape[at]);
  std::vector<Piece> pieces;
  for (std::int64_t outer = 0; outer < before; ++outer) {
    pieces.push_back({(outer * shape[at] + first) * after, (last - first) * after});
  }
  return merged(std::move(pieces));
}

std::map<std::string, std::vector<Piece>> flat_pieces(const std::vector<FlatMember>& members,
                                                      std::int64_t alignment, int rank, int ranks) {
  std::int64_t end = 0;
  std::vector<std::int64_t> starts;
  for (const FlatMember& member : members) {
    if (alignment > 0) end = round_up(end, alignment);
    starts.push_back(end);
    end += member.numel;
  }
  const std::int64_t shard = ceil_div(end, ranks);
  const std::int64_t first = rank * shard, last = first + shard;
  std::map<std::string, std::vector<Piece>> result;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const std::int64_t from = std::max(first, starts[i]);
    const std::int64_t to = std::min(last, starts[i] + members[i].numel);
    result[members[i].name] =
        to > from ? std::vector<Piece>{{from - starts[i], to - from}} : std::vector<Piece>{};
  }
  return result;
}

}  // namespace fsdp_cts
