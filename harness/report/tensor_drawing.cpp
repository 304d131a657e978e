#include "harness/report/tensor_drawing.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

namespace fsdp_cts {
namespace {

constexpr std::int64_t max_elements = 1 << 24;
constexpr std::int64_t max_rows = 64, max_columns = 96, line = 32;
constexpr int cell = 9;  // pixels

struct Stretch {
  int rank = -1;
  std::int64_t first = 0, count = 0;
};

// [first, count], or [rank, first, count].
std::optional<Stretch> stretch_of(const Json& entry, bool with_rank, std::int64_t elements) {
  const std::size_t size = with_rank ? 3 : 2;
  if (!entry.is_array() || entry.size() != size) return std::nullopt;
  for (const Json& number : entry) {
    if (!number.is_number_integer()) return std::nullopt;
  }
  const Stretch stretch{with_rank ? entry[0].get<int>() : -1, entry[size - 2].get<std::int64_t>(),
                        entry[size - 1].get<std::int64_t>()};
  if (stretch.first < 0 || stretch.count < 0 || stretch.first > elements ||
      stretch.count > elements - stretch.first)
    return std::nullopt;
  return stretch;
}

std::optional<std::vector<Stretch>> stretches_of(const Json& tensor, const char* key, bool with_rank,
                                                 std::int64_t elements) {
  std::vector<Stretch> stretches;
  const auto list = tensor.find(key);
  if (list == tensor.end() || !list->is_array() || list->size() > 1024) return std::nullopt;
  for (const Json& entry : *list) {
    const auto stretch = stretch_of(entry, with_rank, elements);
    if (!stretch) return std::nullopt;
    stretches.push_back(*stretch);
  }
  return stretches;
}

std::int64_t divided_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// The cells of the drawing, each for one element or a block of them.
class Drawing {
 public:
  Drawing(const std::vector<std::int64_t>& shape, std::int64_t elements)
      : columns_(shape.size() < 2 ? std::min(elements, line) : elements / shape[0]),
        rows_(divided_up(elements, columns_)),
        block_rows_(divided_up(rows_, max_rows)),
        block_columns_(divided_up(columns_, max_columns)),
        width_(divided_up(columns_, block_columns_)),
        height_(divided_up(rows_, block_rows_)),
        cells_(static_cast<std::size_t>(width_ * height_)) {}

  void hold(const Stretch& stretch) {
    visit(stretch, [&](Cell& at) {
      if (at.rank < 0 || stretch.rank < at.rank) at.rank = stretch.rank;  // of replicas the first
    });
    ranks_.insert(stretch.rank);
  }
  void differ(const Stretch& stretch) {
    visit(stretch, [](Cell& at) { at.differs = true; });
  }

  std::string svg() const {
    std::string body;
    for (std::int64_t row = 0; row < height_; ++row) {
      for (std::int64_t column = 0; column < width_;) {
        const std::int64_t from = column;
        while (column < width_ && at(row, column) == at(row, from)) ++column;
        body += fmt::format("<rect x={} y={} width={} height={} {}/>", from * cell, row * cell,
                            (column - from) * cell, cell, look(at(row, from)));
      }
    }
    return fmt::format(
        "<svg class=map role=img width={0} height={1} viewBox=\"-1 -1 {2} {3}\"><title>elements that differ, "
        "over "
        "the shards of the ranks</title>{4}<path class=border d=\"{5}\"/></svg>\n",
        width_ * cell + 2, height_ * cell + 2, width_ * cell + 2, height_ * cell + 2, body, borders());
  }

  std::string legend() const {
    std::string text = "<span class=bad>\u25a0</span> differs";
    for (int rank : ranks_)
      text += fmt::format(" <span style=\"color:{}\">\u25a0</span> rank {}", colour(rank), rank);
    if (block_rows_ * block_columns_ > 1)
      text += fmt::format("; a cell stands for {} x {} elements", block_rows_, block_columns_);
    return text;
  }

 private:
  struct Cell {
    int rank = -1;
    bool differs = false;
    bool operator==(const Cell&) const = default;
  };

  const Cell& at(std::int64_t row, std::int64_t column) const {
    return cells_[static_cast<std::size_t>(row * width_ + column)];
  }
  // Every cell that the stretch touches, row by row of the tensor: a row of a block is one step, however wide.
  template <class Visit>
  void visit(const Stretch& stretch, const Visit& touch) {
    std::int64_t index = stretch.first;
    const std::int64_t end = stretch.first + stretch.count;
    while (index < end) {
      const std::int64_t row = index / columns_, column = index % columns_;
      const std::int64_t last = std::min(end - index, columns_ - column) + column - 1;
      for (std::int64_t each = column / block_columns_; each <= last / block_columns_; ++each)
        touch(cells_[static_cast<std::size_t>(row / block_rows_ * width_ + each)]);
      index += last - column + 1;
    }
  }

  static std::string colour(int rank) { return fmt::format("hsl({} 55% 60%)", (200 + 67 * rank) % 360); }
  static std::string look(const Cell& shown) {
    if (shown.differs) return "class=differs";
    if (shown.rank < 0) return "class=gone";
    return fmt::format("fill=\"{}\" fill-opacity=.45", colour(shown.rank));
  }

  // Lines between cells of different ranks.
  std::string borders() const {
    std::string path;
    for (std::int64_t row = 0; row < height_; ++row) {
      for (std::int64_t column = 0; column < width_; ++column) {
        if (column > 0 && at(row, column).rank != at(row, column - 1).rank)
          path += fmt::format("M{} {}v{}", column * cell, row * cell, cell);
        if (row > 0 && at(row, column).rank != at(row - 1, column).rank)
          path += fmt::format("M{} {}h{}", column * cell, row * cell, cell);
      }
    }
    return path;
  }

  std::int64_t columns_, rows_, block_rows_, block_columns_, width_, height_;
  std::vector<Cell> cells_;
  std::set<int> ranks_;
};

std::optional<std::vector<std::int64_t>> shape_of(const Json& tensor, std::int64_t& elements) {
  const auto shape = tensor.find("shape");
  if (shape == tensor.end() || !shape->is_array() || shape->size() > 16) return std::nullopt;
  std::vector<std::int64_t> sizes;
  elements = 1;
  for (const Json& size : *shape) {
    if (!size.is_number_integer() || size.get<std::int64_t>() < 1 || size.get<std::int64_t>() > max_elements)
      return std::nullopt;
    sizes.push_back(size.get<std::int64_t>());
    elements *= sizes.back();
    if (elements > max_elements) return std::nullopt;
  }
  return sizes;
}

}  // namespace

std::string drawing_of(const Json& tensor) {
  if (!tensor.is_object()) return "";
  std::int64_t elements = 0;
  const auto shape = shape_of(tensor, elements);
  if (!shape) return "";
  const auto held = stretches_of(tensor, "held", true, elements);
  const auto differing = stretches_of(tensor, "differing", false, elements);
  if (!held || !differing) return "";
  Drawing drawing(*shape, elements);
  for (const Stretch& stretch : *held) drawing.hold(stretch);
  for (const Stretch& stretch : *differing) drawing.differ(stretch);
  const std::int64_t not_shown = tensor.contains("not_shown") && tensor["not_shown"].is_number_integer()
                                     ? tensor["not_shown"].get<std::int64_t>()
                                     : 0;
  return fmt::format("{}<p class=soft>[{}] {}{}</p>\n", drawing.svg(), fmt::join(*shape, ", "),
                     drawing.legend(),
                     not_shown > 0 ? fmt::format("; {} more that differ are not shown", not_shown) : "");
}

}  // namespace fsdp_cts
