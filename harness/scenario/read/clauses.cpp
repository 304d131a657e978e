#include "harness/scenario/read/clauses.hpp"

#include <fstream>

#include "harness/protocol/pattern.hpp"

namespace fsdp_cts {

std::map<std::string, Clause> load_clauses(const std::filesystem::path& conformance, Mistakes& mistakes) {
  static const Pattern id_form("[A-Z]+(-[A-Z]+)*-[0-9]+");
  const auto file = std::make_shared<const std::string>((conformance / "clauses.md").string());
  std::ifstream stream(*file);
  std::map<std::string, Clause> clauses;
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    std::vector<std::string> cells;
    for (std::size_t at = line.starts_with("| ") ? 2 : std::string::npos; at < line.size();) {
      const std::size_t end = std::min(line.find(" |", at), line.size());
      cells.push_back(line.substr(at, end - at));
      at = end + 3;
    }
    if (cells.size() < 3 || !id_form.matches(cells[0])) continue;
    const bool law = cells.size() > 3 && cells[3].ends_with("law");
    const auto [other, fresh] =
        clauses.try_emplace(cells[0], Clause{cells[1], cells[2], law, {file, number}});
    if (!fresh)
      mistakes.add({file, number}, "clause " + cells[0] + " stands in line " +
                                       std::to_string(other->second.place.line) +
                                       " already; an id is given once and never changes its meaning");
  }
  if (clauses.empty())
    mistakes.add({file, 1}, "no clause was found here; expected rows '| G-1 | MUST | … |'");
  return clauses;
}

}  // namespace fsdp_cts
