// The expressions of scenario files (LANGUAGE.md §2): null, booleans, integers, floats, 'strings', lists;
// names;
// ?: || && ! == != < <= > >= in + - * / %; min, max, ceil_div. No side effects, no recursion through names.
#pragma once

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

namespace fsdp_cts {

using Scope = std::map<std::string, nlohmann::ordered_json, std::less<>>;

// What is wrong and, for an unknown name or function, what is known.
class ExpressionError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Every name must be known, also in a branch that is not taken; operators are checked only where they are
// evaluated.
// `&&`, `||`, `!` and `?:` take booleans only; `/` on two integers is exact or an error; `%` is never
// negative;
// `==` between different types is false, except that 1 == 1.0.
nlohmann::ordered_json evaluate_expression(std::string_view text, const Scope& scope);

// `text` with every ${…} replaced. Exactly one ${…} and nothing else keeps the expression's type.
nlohmann::ordered_json interpolate(std::string_view text, const Scope& scope);
bool has_expression(std::string_view text);

// As in ids and interpolated text: true, null, 2, 0.5, text. Throws ExpressionError for lists and maps.
std::string scalar_text(const nlohmann::ordered_json& scalar);

// The candidate most like `found`, or "" when none is near.
template <typename Names>
std::string nearest_name(std::string_view found, const Names& candidates);
std::size_t edit_distance(std::string_view a, std::string_view b);

template <typename Names>
std::string nearest_name(std::string_view found, const Names& candidates) {
  std::string best;
  std::size_t best_distance = std::min(found.size() / 3 + 2, found.size());
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(found, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace fsdp_cts
