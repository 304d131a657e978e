#include "harness/scenario/read/nearest_name.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace fsdp_cts {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t change = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({change, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_name(std::string_view found, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = std::min(found.size() / 3 + 2, found.size());
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(found, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace fsdp_cts
