// The expressions of scenario files (LANGUAGE.md §2): null, booleans, integers, floats, 'strings', lists;
// names;
// ?: || && ! == != < <= > >= in + - * / %; min, max, ceil_div. No side effects, no recursion through names.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
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

// The names that an expression, or every ${…} of a text, reads. Throws ExpressionError for what is no expression.
std::set<std::string> names_in_expression(std::string_view text);
std::set<std::string> names_in_text(std::string_view text);

// As in ids and interpolated text: true, null, 2, 0.5, text. Throws ExpressionError for lists and maps.
std::string scalar_text(const nlohmann::ordered_json& scalar);

}  // namespace fsdp_cts
