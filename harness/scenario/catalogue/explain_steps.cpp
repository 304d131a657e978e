#include "harness/scenario/catalogue/explain_steps.hpp"

#include <algorithm>

#include "harness/scenario/read/verbs.hpp"

namespace fsdp_cts {
namespace {

constexpr std::size_t line_length = 110;
constexpr std::size_t values_shown = 4;  // of an argument that changes from iteration to iteration

bool same_kind_of_step(const Json& a, const Json& b) {
  return a["verb"] == b["verb"] && a.value("label", "") == b.value("label", "") &&
         a.value("ranks", Json()) == b.value("ranks", Json());
}

// Steps of one iteration, or of the stretch outside any.
using Stretch = std::vector<const Json*>;

std::vector<Stretch> stretches_of(const Json& program) {
  std::vector<Stretch> result;
  Json last_iteration;
  for (const Json& step : program) {
    const Json iteration = step.value("iteration", Json());
    if (result.empty() || iteration != last_iteration) result.emplace_back();
    result.back().push_back(&step);
    last_iteration = iteration;
  }
  return result;
}

bool described_alike(const Stretch& a, const Stretch& b) {
  return a.front()->contains("iteration") && b.front()->contains("iteration") &&
         std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Json* x, const Json* y) { return same_kind_of_step(*x, *y); });
}

// The step with, for each argument that changes, its values one after another.
Json merged(const std::vector<Stretch>& stretches, std::size_t first, std::size_t count, std::size_t index) {
  Json step = *stretches[first][index];
  for (auto& [key, value] : step.items()) {
    std::vector<std::string> values;
    bool changes = false;
    for (std::size_t i = first; i < first + count; ++i) {
      const Json& other = stretches[i][index]->value(key, Json());
      values.push_back(shown(other));
      changes |= other != value;
    }
    if (!changes || key == "iteration" || key == "line") continue;
    std::string text;
    for (std::size_t i = 0; i < std::min(values.size(), values_shown); ++i)
      text += (i ? ", then " : "") + values[i];
    value = text + (values.size() > values_shown ? ", …" : "");
  }
  return step;
}

std::string step_text(const Json& step) {
  const Verb& verb = *find_verb(step["verb"].get<std::string>());
  Json arguments = step;
  for (const char* key : {"verb", "iteration", "line", "label", "ranks"}) arguments.erase(key);
  std::string text = filled_in(verb.about, arguments, verb.arguments);
  if (step.contains("ranks")) text += "; on ranks " + shown(step["ranks"]) + " only";
  if (step.contains("label")) text += "; called '" + step["label"].get<std::string>() + "'";
  return text;
}

}  // namespace

std::string wrapped(const std::string& text, std::size_t hanging) {
  std::string result, line;
  std::size_t at = text.find_first_not_of(' ');
  line.assign(at == std::string::npos ? 0 : at, ' ');
  bool fresh = true;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    // Runs of spaces inside the text align columns and are kept.
    const std::size_t next = std::min(text.find_first_not_of(' ', end), text.size());
    if (!fresh && line.size() + word.size() > line_length) {
      result += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
      line.assign(hanging, ' ');
    }
    line += word + std::string(next - end, ' ');
    fresh = false;
    at = next;
  }
  return result + line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

std::string shown(const Json& value) {
  if (value.is_string()) return value.get_ref<const std::string&>().empty() ? "''" : value.get<std::string>();
  if (value.is_object()) return "(" + shown_arguments(value, {}) + ")";
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const Json& item : value)
    text += (text.empty() ? "" : ", ") + (item.is_array() ? "[" + shown(item) + "]" : shown(item));
  return text;
}

std::string shown_arguments(const Json& arguments, const std::vector<std::string>& mentioned,
                            const Fields* fields) {
  std::string text;
  for (const auto& [key, value] : arguments.items()) {
    if (std::find(mentioned.begin(), mentioned.end(), key) != mentioned.end()) continue;
    const Field* field = fields ? find_field(*fields, key) : nullptr;
    if (field && !field->fallback.is_null() && field->fallback == value) continue;
    text += (text.empty() ? "" : ", ") + key + " " + shown(value);
  }
  return text;
}

std::string filled_in(const std::string& sentence, const Json& arguments, const Fields& fields) {
  std::string text;
  std::vector<std::string> mentioned;
  std::size_t at = 0;
  for (std::size_t open = sentence.find('{'); open != std::string::npos; open = sentence.find('{', at)) {
    const std::size_t close = sentence.find('}', open);
    const std::string key = sentence.substr(open + 1, close - open - 1);
    text += sentence.substr(at, open - at);
    if (key.empty())
      return text + (arguments.is_object() ? shown_arguments(arguments, {}) : shown(arguments)) +
             sentence.substr(close + 1);
    std::string value = arguments.contains(key) ? shown(arguments[key]) : "";
    // The sentence brings its own quotes where a name goes.
    if (value == "''" && open > 0 && sentence[open - 1] == '\'') value.clear();
    text += value;
    mentioned.push_back(key);
    at = close + 1;
  }
  text += sentence.substr(at);
  const std::string rest = arguments.is_object() ? shown_arguments(arguments, mentioned, &fields) : "";
  return text + (rest.empty() ? "" : ": " + rest);
}

std::string explain_steps(const Json& program) {
  const std::vector<Stretch> stretches = stretches_of(program);
  std::string text;
  for (std::size_t first = 0; first < stretches.size();) {
    std::size_t count = 1;
    while (first + count < stretches.size() && described_alike(stretches[first], stretches[first + count]))
      ++count;
    const std::string margin = count > 1 ? "    " : "  ";
    if (count > 1) text += "  " + std::to_string(count) + " times:\n";
    for (std::size_t i = 0; i < stretches[first].size(); ++i)
      text += wrapped(margin + "- " + step_text(merged(stretches, first, count, i)), margin.size() + 2);
    first += count;
  }
  return text;
}

}  // namespace fsdp_cts
