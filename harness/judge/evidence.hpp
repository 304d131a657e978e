// What an implementation observed, in the form the judge compares: whole tensors and JSON facts, each at one
// place. The same form for a testee (assembled from its shards), for the oracle and for a golden recording.
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/protocol/tensor.hpp"
#include "harness/scenario/case.hpp"

namespace fsdp_cts {

// One observed value. Iteration, label and phase follow from the step (ProgramMap).
struct Place {
  int step = 0;
  std::string what;  // "loss", "gradients", "state_dict:full", …
  std::string model;
  std::string name;  // parameter, buffer or optimizer state; attempt name; "" for registers and other facts
  std::optional<int> rank;  // none: one value for all ranks (assembled from shards, or equal everywhere)
  auto operator<=>(const Place&) const = default;
};
std::string describe(const Place& place);

std::int64_t numel_of(const std::vector<std::int64_t>& shape);

struct Value {
  HostTensor tensor;  // whole, in the global shape; empty when `none`
  bool none = false;  // an absent gradient
  bool sharded = false;
  std::optional<bool> requires_grad;
};

struct Piece {
  std::int64_t offset = 0;  // flat, row-major, in the global tensor
  std::int64_t length = 0;
  auto operator<=>(const Piece&) const = default;
};

// One rank's share of a tensor, as it described it: what layouts, dtypes and counts are judged by.
struct RankShard {
  Place place;  // with rank
  DType dtype = DType::float32;
  std::vector<std::int64_t> global_shape;
  std::vector<Piece> pieces;
  bool sharded = false;
  bool none = false;
  std::optional<bool> requires_grad;
  bool contiguous = true;         // in the rank's memory
  std::int64_t elements() const;  // without padding
};

struct Evidence {
  std::map<Place, Value> values;
  std::map<Place, Json> facts;    // the entry as it came; Place::what is its `what`
  std::vector<RankShard> shards;  // testee and recordings of one only; empty for the oracle
  std::map<std::pair<int, int>, long>
      memory;  // of the oracle: by step and rank, bytes that the step took at most
};

// The values a place is to be compared with: the same rank's, else the one for all ranks, else (where `place`
// stands for all ranks and the other side differs by rank) every rank's.
std::vector<const Place*> counterparts(const std::map<Place, Value>& values, const Place& place);

// The fact of the same rank, else the one for all ranks; null when there is none.
const Json* counterpart_fact(const Evidence& evidence, const Place& place);

// What the ranks hold of an assembled tensor; nothing for a value that is one rank's.
struct HeldPiece {
  int rank = 0;
  Piece piece;
};
std::vector<HeldPiece> held_pieces(const Evidence& evidence, const Place& place);
// The first rank among them that holds element `index`.
std::optional<int> holder(const std::vector<HeldPiece>& held, std::int64_t index);

// The rank that holds element `index` of an assembled tensor; the place's own rank where it has one.
std::optional<int> holder(const Evidence& evidence, const Place& place, std::int64_t index);

// `what`s whose entry is one tensor of a register, a list of named tensors, or a JSON fact.
bool is_register(const std::string& what);
bool is_tensor_list(const std::string& what);

}  // namespace fsdp_cts
