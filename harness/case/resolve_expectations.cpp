#include "harness/case/build_cases.hpp"
#include "harness/case/edition.hpp"
#include "harness/case/evaluation.hpp"
#include "harness/case/expectations.hpp"
#include "harness/case/program.hpp"

namespace fsdp_cts {
namespace {

const ExpectationKind* kind_of(const DataTree& expectation, Mistakes& mistakes) {
  std::vector<std::string> known;
  for (const ExpectationKind& kind : expectation_kinds_of_language()) known.push_back(kind.name);
  if (!expectation.is_map()) {
    mistakes.add(expectation.place,
                 "an expectation must be a map such as {finite: [loss]}, found " + expectation.shown());
    return nullptr;
  }
  const ExpectationKind* found = nullptr;
  const DataTree::Entry* other = nullptr;
  for (const DataTree::Entry& entry : expectation.entries) {
    if (const ExpectationKind* kind = find_expectation_kind(entry.key)) {
      if (found) {
        mistakes.add({expectation.place.file, entry.line},
                     "an expectation has one kind; found '" + found->name + "' and '" + kind->name + "'");
        return nullptr;
      }
      found = kind;
    } else if (entry.key != "when" && !find_field(expectation_modifiers(), entry.key) && !other) {
      other = &entry;
    }
  }
  if (!found)
    mistakes.add({expectation.place.file, other ? other->line : expectation.place.line},
                 unknown_name("expectation", other ? other->key : "", known));
  return found;
}

// The value behind the kind's name, in its full form. Notes what is wrong with it.
DataTree arguments_of(const ExpectationKind& kind, const DataTree& expectation, Stage stage,
                      Mistakes& mistakes) {
  check_fields(expectation, expectation_modifiers(), "an expectation", stage, mistakes, {kind.name});
  const DataTree& value = *expectation.find(kind.name);
  if (kind.whole) {
    check(value, *kind.whole, kind.name, stage, mistakes);
    return value;
  }
  DataTree arguments = expand_main(value, kind.main);
  for (const char* key : {"what", "to"})
    if (DataTree* one = arguments.find(key)) one->one_becomes_list();
  if (arguments.is_map())
    check_fields(arguments, kind.arguments, kind.name, stage, mistakes);
  else if (!arguments.is_unknown())
    mistakes.add(value.place, kind.name + " needs a map of arguments, found " + value.shown());
  return arguments;
}

void check_meaning(const ExpectationKind& kind, const DataTree& arguments, Mistakes& mistakes) {
  const auto has = [&](std::string_view key) { return arguments.find(key) != nullptr; };
  if (kind.name == "collectives" && has("count") == has("at_least"))
    mistakes.add(arguments.place, "collectives needs one of 'count' and 'at_least'");
  if ((kind.name == "differ" || kind.name == "match") && has("labels") == has("between"))
    mistakes.add(arguments.place, kind.name + " needs one of 'labels' and 'between'");
  if (kind.name == "layout" && !has("kind") && !has("pieces"))
    mistakes.add(arguments.place, "layout needs 'kind' or 'pieces'");
}

}  // namespace

void check_written_expectations(const DataTree& expect, Mistakes& mistakes) {
  for (const DataTree& expectation : expect.items)
    if (const ExpectationKind* kind = kind_of(expectation, mistakes))
      arguments_of(*kind, expectation, Stage::written, mistakes);
}

Json resolve_expectations(const DataTree& written, const Scope& scope, Lane lane, Mistakes& mistakes) {
  Json result = Json::array();
  for (const DataTree& expectation : evaluated(written, scope, mistakes).items) {
    const ExpectationKind* kind = kind_of(expectation, mistakes);
    if (!kind) continue;
    DataTree arguments = arguments_of(*kind, expectation, Stage::evaluated, mistakes);
    if (!kind->whole) {
      fill_defaults(arguments, kind->arguments);
      check_meaning(*kind, arguments, mistakes);
    }
    if (kind->name == "equal" && !arguments.find("tolerance"))
      arguments.set("tolerance", tree_of(lane == Lane::exact ? "exact" : "upstream", arguments.place));
    Json entry = {{kind->name, arguments.json()}};
    for (const Field& modifier : expectation_modifiers())
      if (const DataTree* value = expectation.find(modifier.name)) entry[modifier.name] = value->json();
    for (const char* bound : {"since", "until"})
      if (const DataTree* value = expectation.find(bound);
          value && value->is_string() && !edition_of(value->scalar.get<std::string>()))
        mistakes.add(value->place,
                     std::string(bound) + " needs a version such as \"2.15\", found " + value->shown());
    entry["line"] = expectation.place.line;
    result.push_back(std::move(entry));
  }
  return result;
}

}  // namespace fsdp_cts
