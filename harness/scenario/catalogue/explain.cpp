#include "harness/scenario/catalogue/explain.hpp"

#include <algorithm>

#include "harness/scenario/catalogue/explain_steps.hpp"
#include "harness/scenario/read/expectation_kinds.hpp"
#include "harness/scenario/resolve/module_state.hpp"

namespace fsdp_cts {
namespace {

std::string paragraph(const std::string& heading, const std::string& text) {
  return text.empty()
             ? ""
             : wrapped(heading + std::string(heading.size() < 12 ? 12 - heading.size() : 1, ' ') + text, 12);
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string lane_text(Lane lane) {
  switch (lane) {
    case Lane::exact:
      return "exact: every order of summation gives the same bits, so values are compared bit by bit";
    case Lane::tolerance:
      return "tolerance: values are compared within upstream's bounds by dtype, or 16 times the noise of "
             "rounding";
    case Lane::structure:
      return "structure: no numbers are compared";
  }
  throw std::logic_error("a lane that does not exist");
}

std::string model_text(const std::string& instance, const Json& module) {
  std::int64_t parameters = 0, elements = 0, buffers = 0;
  for (const StateShape& state : module_state(module)) {
    if (state.is_buffer) {
      ++buffers;
      continue;
    }
    std::int64_t numel = 1;
    for (const std::int64_t extent : state.shape) numel *= extent;
    ++parameters;
    elements += numel;
  }
  return wrapped("  '" + instance + "': " + module.value("class", "?") + " with " +
                     std::to_string(parameters) + " parameters of " + std::to_string(elements) + " elements" +
                     (buffers ? " and " + std::to_string(buffers) + " buffers" : ""),
                 4);
}

// Values come from formulas of seed, name, rank and iteration: nothing is drawn at random.
std::string data_text(const Json& data) {
  Json general = data;
  general.erase("inputs");
  std::string text = wrapped("  all values: " + shown_arguments(general, {}), 4);
  const Json inputs = data.value("inputs", Json::object());
  for (const auto& [name, input] : inputs.items())
    text += wrapped("  '" + name + "': " + shown_arguments(input, {}), 4);
  return text;
}

std::string plan_text(const std::string& instance, const Json& plan) {
  std::string text = "  '" + instance + "' by " + plan.value("api", "?");
  if (plan.contains("mesh")) text += " over a mesh of " + plan["mesh"].dump() + " (replicas, shards)";
  text += ", in this order:\n";
  for (const Json& unit : plan.value("units", Json::array())) {
    Json settings = unit;
    settings.erase("modules");
    const std::string rest = shown_arguments(settings, {});
    text += wrapped(
        "    modules " + shown(unit.value("modules", Json::array())) + (rest.empty() ? "" : ": " + rest), 6);
  }
  return text;
}

std::string expectation_text(const Json& expectation) {
  const std::string kind_name = expectation.begin().key();
  const ExpectationKind& kind = *find_expectation_kind(kind_name);
  std::string text = filled_in(kind.about, expectation.begin().value(), kind.arguments);
  for (const char* modifier : {"label", "iteration", "model", "since", "until"})
    if (expectation.contains(modifier))
      text += std::string("; only ") + modifier + " " + shown(expectation[modifier]);
  if (expectation.contains("clause")) text += "  [" + shown(expectation["clause"]) + "]";
  return wrapped("  - " + text, 4);
}

}  // namespace

std::string explain_case(const Case& a_case) {
  std::string text = a_case.id + "\n\n";
  text += paragraph("Why", a_case.why);
  text += paragraph("Source", a_case.source);
  text += paragraph("File", a_case.file.string());
  text += paragraph("Clauses", joined(a_case.clauses));
  text += paragraph("Lane", lane_text(a_case.lane));
  text += paragraph("World", std::to_string(a_case.world) + (a_case.world == 1 ? " rank" : " ranks"));
  text += paragraph("Requires", a_case.requires_.empty() ? "a CPU" : joined(a_case.requires_));
  text +=
      paragraph("Stands for", a_case.seed_cases ? "1 upstream case" : "no upstream case: it is an addition");
  if (!a_case.cpu_form.empty())
    text += paragraph("CPU form", "the nearest that a CPU can do: " + a_case.cpu_form);
  if (!a_case.continues.empty())
    text += paragraph("Continues", a_case.continues + ", whose checkpoint it loads" +
                                       (a_case.damage ? "; the " + a_case.damage->file +
                                                            " file of its copy is " + a_case.damage->how
                                                      : ""));
  if (a_case.skip_reason) text += paragraph("Skipped", "upstream returns early here: " + *a_case.skip_reason);
  for (const std::string& quirk : a_case.quirks) text += paragraph("Quirk", quirk);

  if (!a_case.switches.empty()) text += paragraph("Switches", shown_arguments(a_case.switches, {}));
  text += "\nModels\n";
  for (const auto& [instance, module] : a_case.models.items()) text += model_text(instance, module);
  text += "\nData (evaluated by the formulas of data-formulas.md)\n" + data_text(a_case.data);
  if (!a_case.plans.empty()) text += "\nHow they are sharded\n";
  for (const auto& [instance, plan] : a_case.plans.items()) text += plan_text(instance, plan);
  text += "\nWhat every rank does\n" + explain_steps(a_case.program);
  text += "\nWhat is expected\n";
  for (const Json& expectation : a_case.expect) text += expectation_text(expectation);
  if (!a_case.minimum.empty())
    text += wrapped("  - at least this much is compared, otherwise the verdict is unresolved: " +
                        shown_arguments(a_case.minimum, {}),
                    4);
  text += "\nHow to run it\n  fsdp-cts run '" + a_case.id + "'\n  fsdp-cts run '" + a_case.id +
          "' --testee pytorch\n  fsdp-cts replay '" + a_case.id + "'\n";
  return text;
}

}  // namespace fsdp_cts
