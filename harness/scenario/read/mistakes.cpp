#include "harness/scenario/read/mistakes.hpp"

#include <algorithm>
#include <tuple>

#include "harness/scenario/read/nearest_name.hpp"

namespace fsdp_cts {

void Mistakes::add(const SourcePlace& place, const std::string& what) {
  ++noted_;
  Line line{place.file ? *place.file : "", place.line, what};
  if (std::find(lines_.begin(), lines_.end(), line) == lines_.end()) lines_.push_back(std::move(line));
}

void Mistakes::add_all(const Mistakes& others) {
  noted_ += others.noted_;
  lines_.insert(lines_.end(), others.lines_.begin(), others.lines_.end());
}

void Mistakes::throw_if_any() const {
  if (empty()) return;
  std::vector<Line> sorted = lines_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Line& a, const Line& b) {
    return std::tie(a.file, a.line) < std::tie(b.file, b.line);
  });
  std::string text;
  for (const Line& line : sorted)
    text += (text.empty() ? "" : "\n") + line.file + ":" + std::to_string(line.line) + ": " + line.what;
  throw ScenarioError(text);
}

std::string unknown_name(std::string_view kind, std::string_view found,
                         const std::vector<std::string>& allowed) {
  std::string text = "unknown " + std::string(kind) + " '" + std::string(found) + "'";
  if (const std::string near = nearest_name(found, allowed); !near.empty())
    text += ", did you mean '" + near + "'?";
  text += allowed.empty() ? "; none is allowed" : "; allowed are ";
  for (std::size_t i = 0; i < allowed.size(); ++i) text += (i ? ", " : "") + allowed[i];
  return text;
}

}  // namespace fsdp_cts
