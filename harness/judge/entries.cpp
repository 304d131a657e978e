#include "harness/judge/entries.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace fsdp_cts {
namespace {

// A fault in an entry, turned into a finding by read_entries.
struct EntryFault : std::runtime_error {
  EntryFault(std::string code, const std::string& text) : std::runtime_error(text), code(std::move(code)) {}
  std::string code;
};

const HostTensor& tensor_named(const Observation& observation, const Json& name) {
  auto found = observation.tensors.find(name.get<std::string>());
  if (found == observation.tensors.end()) {
    throw EntryFault(
        "tensor_missing",
        fmt::format("names tensor '{}', which is not in the observation's file", name.get<std::string>()));
  }
  return found->second;
}

// `part`: the path of the module that names are relative to, "" for the model itself.
ItemRead read_item(const Observation& observation, const Json& item, const Place& list_place,
                   const std::string& part) {
  ItemRead read;
  read.described.place = list_place;
  read.described.place.name = (part.empty() ? "" : part + ".") + item.at("name").get<std::string>();
  read.described.global_shape = item.at("global_shape").get<std::vector<std::int64_t>>();
  for (std::int64_t size : read.described.global_shape) {
    if (size < 0)
      throw EntryFault("shape",
                       fmt::format("{} has a negative size in its global_shape", read.described.place.name));
  }
  read.described.none = item.value("none", false);
  read.described.sharded = item.value("sharded", false);
  if (auto it = item.find("requires_grad"); it != item.end() && it->is_boolean())
    read.described.requires_grad = it->get<bool>();
  read.described.contiguous = item.value("contiguous", true);
  if (read.described.none && !item.contains("dtype")) return read;
  read.described.dtype = dtype_from_name(item.at("dtype").get<std::string>());
  if (!item.contains("pieces")) return read;
  for (const Json& piece : item["pieces"]) {
    const HostTensor& tensor = tensor_named(observation, piece.at("tensor"));
    const Piece extent{piece.at("offset").get<std::int64_t>(), piece.at("length").get<std::int64_t>()};
    const std::int64_t padding = piece.value("padding", std::int64_t{0});
    if (tensor.dtype != read.described.dtype) {
      throw EntryFault("dtype",
                       fmt::format("{} is said to be {} but its tensor is {}", read.described.place.name,
                                   dtype_name(read.described.dtype), dtype_name(tensor.dtype)));
    }
    if (extent.length < 0 || padding < 0 || tensor.numel() != extent.length + padding) {
      throw EntryFault(
          "shape",
          fmt::format("a piece of {} is said to have {} elements and {} of padding but its tensor has {}",
                      read.described.place.name, extent.length, padding, tensor.numel()));
    }
    read.described.pieces.push_back(extent);
    read.tensors.push_back(&tensor);
  }
  return read;
}

Place place_of(const Observation& observation, const Json& entry, const ProgramMap& program,
               bool entry_ranks) {
  Place place;
  place.step = observation.step;
  place.what = entry.at("what").get<std::string>();
  place.model = entry.contains("model") && entry["model"].is_string() ? entry["model"].get<std::string>()
                                                                      : program.at(observation.step).model;
  if (!entry_ranks) {
    place.rank = observation.rank;
  } else if (auto rank = entry.find("rank"); rank != entry.end() && rank->is_number_integer()) {
    place.rank = rank->get<int>();
  }
  if (place.what == "attempt") place.name = entry.at("name").get<std::string>();
  return place;
}

}  // namespace

Finding finding_at(VerdictKind kind, std::string code, const Place& place, const ProgramMap& program,
                   std::string summary) {
  Finding finding{kind, std::move(code), std::move(summary), Json::object(), place.step};
  Json& divergence = finding.divergence;
  if (program.contains(place.step)) {
    const StepFacts& facts = program.at(place.step);
    divergence["step"] = place.step;
    divergence["verb"] = facts.verb;
    if (facts.iteration) divergence["iteration"] = *facts.iteration;
    if (!facts.label.empty()) divergence["label"] = facts.label;
    divergence["phase"] = facts.phase;
  }
  if (!place.what.empty()) divergence["what"] = place.what;
  if (!place.model.empty() && place.model != "model") divergence["model"] = place.model;
  if (!place.name.empty()) divergence["parameter"] = place.name;
  if (place.rank) divergence["rank"] = *place.rank;
  return finding;
}

Finding broken_law(const char* clause, std::string code, const Place& place, const ProgramMap& program,
                   std::string summary) {
  Finding finding = finding_at(VerdictKind::fail, std::move(code), place, program, std::move(summary));
  Json divergence{{"clause", clause}};
  divergence.update(finding.divergence);
  finding.divergence = std::move(divergence);
  return finding;
}

void read_entries(const Observation& observation, const ProgramMap& program, bool entry_ranks,
                  VerdictKind kind, const EntrySink& sink) {
  Place where;
  where.step = observation.step;
  if (!entry_ranks) where.rank = observation.rank;
  auto report = [&](const std::string& code, const std::string& text) {
    sink.on_finding(
        finding_at(kind, code, where, program,
                   fmt::format("{}{}", where.rank ? fmt::format("rank {}: ", *where.rank) : "", text)));
  };
  const bool observes =
      program.contains(observation.step) &&
      (program.at(observation.step).verb == "observe" || program.at(observation.step).verb == "attempt_end");
  if (!observes || (!entry_ranks && !program.takes_part(observation.step, observation.rank))) {
    report("unknown_step", fmt::format("sent an observation for step {}, at which it has nothing to observe",
                                       observation.step));
    return;
  }
  if (!observation.entries.is_array()) {
    report("malformed_entry", "`entries` of an observation is not a list");
    return;
  }
  for (const Json& entry : observation.entries) {
    try {
      where = place_of(observation, entry, program, entry_ranks);
      if (is_register(where.what)) {
        sink.on_register(where, tensor_named(observation, entry.at("tensor")));
      } else if (is_tensor_list(where.what)) {
        const auto& parts = program.at(observation.step).parts;
        const auto part = parts.find(where.what);
        for (const Json& item : entry.at("items")) {
          // One bad item says nothing about the others of its list.
          try {
            sink.on_item(read_item(observation, item, where, part == parts.end() ? "" : part->second));
          } catch (const EntryFault& fault) {
            report(fault.code, fault.what());
          }
        }
      } else {
        sink.on_fact(where, entry);
      }
    } catch (const EntryFault& fault) {
      report(fault.code, fault.what());
    } catch (const std::exception& error) {
      report("malformed_entry",
             fmt::format("an entry cannot be read ({}): {:.200}", error.what(), entry.dump()));
    }
  }
}

}  // namespace fsdp_cts
