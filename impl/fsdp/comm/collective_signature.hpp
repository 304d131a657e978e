#pragma once
// What all ranks of a group must say alike when they issue a collective, and how a difference is put to a
// person. Backends compare it where that costs nothing.
#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/python_text.hpp"
#include "fsdp/comm/communicator.hpp"

namespace fsdp {

/// " of ranks 0, 1"
inline std::string of_ranks(const std::vector<int64_t>& ranks) {
  std::string text = " of ranks";
  for (const auto rank : ranks) text += (text.back() == 's' ? " " : ", ") + std::to_string(rank);
  return text;
}

class CollectiveSignature {
 public:
  enum class Kind : int32_t { meeting, all_gather, reduce_scatter, all_reduce, broadcast };

  /// The making of a group.
  CollectiveSignature() = default;
  /// all_reduce and broadcast have one part, whose `small` is the tensor. `root`, of a broadcast, is
  /// a rank of the world.
  CollectiveSignature(Kind kind, c10::ArrayRef<Part> parts, ReduceOp op = ReduceOp::sum, int64_t root = 0)
      : head_{kind, static_cast<int32_t>(op), root, 0, static_cast<int64_t>(parts.size())} {
    parts_.reserve(parts.size());
    for (const auto& part : parts) {
      // Only a reduce-scatter sends `large`, and cuts it by `small`.
      const auto large = kind == Kind::reduce_scatter ? part.large.numel() : 0;
      parts_.push_back({part.small.numel(), large, static_cast<int64_t>(part.small.scalar_type())});
    }
  }
  /// As `write` has left it.
  explicit CollectiveSignature(const std::byte* bytes) {
    std::memcpy(&head_, bytes, sizeof(Head));
    parts_.resize(static_cast<size_t>(head_.parts));
    if (!parts_.empty()) std::memcpy(parts_.data(), bytes + sizeof(Head), bytes_of_parts());
  }

  /// How many collectives the group has issued before this one, its making included.
  int64_t number() const { return head_.number; }
  void set_number(int64_t number) { head_.number = number; }

  size_t size_in_bytes() const { return sizeof(Head) + bytes_of_parts(); }
  void write(std::byte* to) const {
    std::memcpy(to, &head_, sizeof(Head));
    if (!parts_.empty()) std::memcpy(to + sizeof(Head), parts_.data(), bytes_of_parts());
  }
  /// Whether `bytes` are those of an equal signature.
  bool is_written_at(const std::byte* bytes) const {
    // The number of parts is in the head, so no more of them are looked at than there are.
    return std::memcmp(bytes, &head_, sizeof(Head)) == 0 &&
           (parts_.empty() || std::memcmp(bytes + sizeof(Head), parts_.data(), bytes_of_parts()) == 0);
  }

  /// 16 bits that are most likely others in a different collective. The number of the collective is not in
  /// them.
  uint32_t digest() const {
    uint64_t hash = static_cast<uint64_t>(head_.kind) * 64 + static_cast<uint64_t>(head_.op);
    const auto add = [&hash](int64_t value) {
      hash = (hash ^ static_cast<uint64_t>(value)) * 0x9e3779b97f4a7c15U;
      hash ^= hash >> 29;
    };
    add(head_.root);
    add(head_.parts);
    for (const auto& part : parts_) {
      add(part.small);
      add(part.large);
      add(part.dtype);
    }
    return static_cast<uint32_t>(hash >> 48);
  }

  const char* kind_text() const {
    constexpr const char* kTexts[] = {"the making of the group", "all_gather", "reduce_scatter", "all_reduce",
                                      "broadcast"};
    return kTexts[static_cast<int32_t>(head_.kind)];
  }

  /// "rank 1 issued all_gather of 12 x float32 where rank 0 issued …". `ranks` are the group's, in the world.
  std::string difference(const CollectiveSignature& peer, int64_t peer_rank, int64_t own_rank,
                         const std::vector<int64_t>& ranks) const {
    size_t part = 0;
    while (part + 1 < std::min(parts_.size(), peer.parts_.size()) &&
           std::memcmp(&parts_[part], &peer.parts_[part], sizeof(PartSizes)) == 0)
      ++part;
    return "rank " + std::to_string(peer_rank) + " issued " + peer.text(part) + " where rank " +
           std::to_string(own_rank) + " issued " + text(part) + " (collective " + std::to_string(number()) +
           " of this group" + of_ranks(ranks) +
           "). All ranks of a group must issue the same collectives in the same order.";
  }

  std::string text(size_t part) const {
    std::string text = kind_text();
    const auto op = static_cast<ReduceOp>(head_.op);
    if (op != ReduceOp::sum) text += op == ReduceOp::avg ? " (avg)" : " (max)";
    if (head_.kind == Kind::broadcast) text += " from rank " + std::to_string(head_.root);
    if (parts_.empty()) return text;
    const auto index = std::min(part, parts_.size() - 1);
    if (parts_.size() == 1)
      text += " of ";
    else
      text += " of " + std::to_string(parts_.size()) + " tensors, of which tensor " + std::to_string(index) +
              " is ";
    const auto& sizes = parts_[index];
    const bool scatters = head_.kind == Kind::reduce_scatter;
    const auto dtype = python_text(static_cast<at::ScalarType>(sizes.dtype));
    text += std::to_string(scatters ? sizes.large : sizes.small) + " x " + dtype.substr(dtype.find('.') + 1);
    return scatters ? text + " in blocks of " + std::to_string(sizes.small) : text;
  }

 private:
  // Both are compared byte by byte: no padding.
  struct Head {
    Kind kind = Kind::meeting;
    int32_t op = 0;
    int64_t root = 0;
    int64_t number = 0;
    int64_t parts = 0;
  };
  struct PartSizes {
    int64_t small, large, dtype;
  };
  static_assert(sizeof(Head) == 32 && sizeof(PartSizes) == 24);

  size_t bytes_of_parts() const { return parts_.size() * sizeof(PartSizes); }

  Head head_;
  std::vector<PartSizes> parts_;
};

}  // namespace fsdp
