#include "harness/scenario/catalogue/lint.hpp"

#include <algorithm>
#include <set>

#include "harness/protocol/pattern.hpp"
#include "harness/scenario/catalogue/side_by_side.hpp"
#include "harness/scenario/read/clauses.hpp"
#include "harness/scenario/read/expectation_kinds.hpp"
#include "harness/scenario/read/yaml_file.hpp"
#include "harness/scenario/resolve/module_state.hpp"

namespace fsdp_cts {
namespace {

std::vector<std::string> names_in(const Json& one_or_more) {
  if (one_or_more.is_string()) return {one_or_more.get<std::string>()};
  return one_or_more.get<std::vector<std::string>>();
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Parameters and buffers of the case's models, by the names that observations use.
std::set<std::string> state_names(const Case& a_case) {
  std::set<std::string> names;
  for (const auto& [instance, model] : a_case.models.items())
    for (const StateShape& state : module_state(model)) names.insert(state.name);
  return names;
}

// Layouts judge whatever shards were observed; the unit tree that an automatic policy makes is the
// reference's.
bool takes(const std::string& kind, const Json& arguments, const std::string& what) {
  if (kind == "layout") return what == "parameters" || what == "gradients" || what == "units";
  return contains(observations_needed(kind, arguments), what);
}

bool looks_at(const Json& expectation, const Json& step, const std::string& what) {
  const std::string kind = expectation.begin().key();
  const Json& arguments = expectation.begin().value();
  if (!takes(kind, arguments, what)) return false;
  const std::string label = step.value("label", "");
  for (const char* key : {"label", "iteration", "model"})
    if (expectation.contains(key) && step.value(key, Json()) != expectation[key]) return false;
  if (arguments.is_object() && arguments.contains("labels"))
    return contains(names_in(arguments["labels"]), label);
  if (arguments.is_object() && arguments.contains("between"))
    return contains(names_in(arguments["between"]), step.value("model", ""));
  return true;
}

bool must_fail(const Case& a_case, const std::string& attempt) {
  return std::any_of(a_case.expect.begin(), a_case.expect.end(), [&](const Json& expectation) {
    return expectation.contains("error") && expectation["error"].value("attempt", "") == attempt;
  });
}

// Every case of one file, and what is known about its lines so far.
class FileLint {
 public:
  explicit FileLint(const std::filesystem::path& file) : tree_(read_yaml(file, file.string(), unreadable_)) {}

  void add(const Case& a_case, Mistakes& mistakes) {
    for (const Json& expectation : a_case.expect) {
      const int line = expectation["line"].get<int>();
      if (expectation.contains("clause"))
        for (const std::string& id : names_in(expectation["clause"])) carried_.emplace(id, line);
      check_only(expectation, a_case, mistakes);
    }
    std::string attempt;
    for (const Json& step : a_case.program) {
      if (step["verb"] == "attempt_begin") attempt = step["name"];
      if (step["verb"] == "attempt_end") attempt.clear();
      if (step["verb"] != "observe") continue;
      // What stands in an attempt that must fail is never reached; the error is what is looked at.
      const bool fails = !attempt.empty() && must_fail(a_case, attempt);
      for (const Json& item : step["what"]) {
        const std::string what = item;
        bool& seen = observed_[{step["line"].get<int>(), what}];
        seen = seen || fails ||
               std::any_of(a_case.expect.begin(), a_case.expect.end(),
                           [&](const Json& expectation) { return looks_at(expectation, step, what); });
      }
    }
  }

  void finish(const std::map<std::string, Clause>& clauses, Mistakes& mistakes) const {
    std::set<std::string> listed;
    check_header(tree_, clauses, listed, mistakes);
    // A twin may list its own.
    if (const DataTree* twins = tree_.find("twins"))
      for (const DataTree::Entry& twin : twins->entries) check_header(twin.value, clauses, listed, mistakes);
    for (const auto& [id, line] : carried_) {
      if (!clauses.count(id))
        mistakes.add({tree_.place.file, line}, "clause " + id + " is not in clauses.md");
      if (!listed.count(id))
        mistakes.add({tree_.place.file, line}, "clause " + id + " is missing in the scenario's `clauses`");
    }
    for (const auto& [observation, seen] : observed_)
      if (!seen)
        mistakes.add({tree_.place.file, observation.first},
                     "'" + observation.second +
                         "' is observed here and no expectation looks at it in any case; expect something of "
                         "it, or do not observe it");
  }

  std::set<std::string> carried() const {
    std::set<std::string> ids;
    for (const auto& [id, line] : carried_) ids.insert(id);
    return ids;
  }

 private:
  void check_header(const DataTree& scenario, const std::map<std::string, Clause>& clauses,
                    std::set<std::string>& listed, Mistakes& mistakes) const {
    const DataTree* header = scenario.find("clauses");
    std::set<std::string> here;
    for (const DataTree& item : header ? header->items : std::vector<DataTree>{}) {
      const std::string id = item.scalar.get<std::string>();
      if (!here.insert(id).second) mistakes.add(item.place, "clause " + id + " is listed twice");
      if (!clauses.count(id)) mistakes.add(item.place, "clause " + id + " is not in clauses.md");
      if (!carried_.count(id))
        mistakes.add(item.place, "clause " + id +
                                     " is listed, but no expectation carries it in any case; put `clause: " +
                                     id + "` on the line that tests it, or take it out of the list");
    }
    listed.merge(here);
  }

  void check_only(const Json& expectation, const Case& a_case, Mistakes& mistakes) const {
    const Json& arguments = expectation.begin().value();
    if (expectation.begin().key() != "differ" || !arguments.contains("only")) return;
    // Other names (of optimizer state, of registers) are the observation's own.
    static const std::vector<std::string> named_by_model = {"parameters", "gradients", "full_parameters",
                                                            "buffers"};
    for (const std::string& what : names_in(arguments["what"]))
      if (!contains(named_by_model, what)) return;
    const std::string text = arguments["only"];
    const Pattern only(text);
    const std::set<std::string> names = state_names(a_case);
    if (std::none_of(names.begin(), names.end(),
                     [&](const std::string& name) { return only.found_in(name); }))
      mistakes.add({tree_.place.file, expectation["line"].get<int>()},
                   "differ.only '" + text + "' matches no parameter and no buffer of the models");
  }

  Mistakes unreadable_;  // a file that cannot be read has no cases
  DataTree tree_;
  std::map<std::string, int> carried_;                    // clause id, line of one that carries it
  std::map<std::pair<int, std::string>, bool> observed_;  // line and what, whether something looks at it
};

// Returns the clauses that lines of these files carry.
std::set<std::string> lint_files(const std::map<std::string, Clause>& clauses, const std::vector<Case>& cases,
                                 Mistakes& mistakes) {
  std::map<std::filesystem::path, std::vector<const Case*>> cases_of;
  for (const Case& a_case : cases)
    // Upstream returns early from these: they are never run.
    if (!a_case.skip_reason) cases_of[a_case.file].push_back(&a_case);
  const std::vector<std::pair<std::filesystem::path, std::vector<const Case*>>> files(cases_of.begin(),
                                                                                      cases_of.end());
  struct Linted {
    std::set<std::string> carried;
    Mistakes mistakes;
  };
  std::vector<Linted> linted(files.size());
  side_by_side(files.size(), [&](std::size_t i) {
    FileLint lint(files[i].first);
    for (const Case* a_case : files[i].second) lint.add(*a_case, linted[i].mistakes);
    lint.finish(clauses, linted[i].mistakes);
    linted[i].carried = lint.carried();
  });
  std::set<std::string> carried;
  for (Linted& file : linted) {
    mistakes.add_all(file.mistakes);
    carried.merge(file.carried);
  }
  return carried;
}

}  // namespace

void check_files(const std::filesystem::path& conformance, const std::vector<Case>& cases) {
  Mistakes mistakes;
  lint_files(load_clauses(conformance, mistakes), cases, mistakes);
  mistakes.throw_if_any();
}

void check_suite(const std::filesystem::path& conformance, const std::vector<Case>& cases) {
  Mistakes mistakes;
  const std::map<std::string, Clause> clauses = load_clauses(conformance, mistakes);
  const std::set<std::string> carried = lint_files(clauses, cases, mistakes);
  for (const auto& [id, clause] : clauses)
    if (!clause.law && !carried.count(id))
      mistakes.add(clause.place,
                   "clause " + id + " is carried by no expectation of any scenario, so nobody is held to it");
  mistakes.throw_if_any();
}

}  // namespace fsdp_cts
