#include "harness/scenario/resolve/expression.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "harness/scenario/read/nearest_name.hpp"
#include "harness/scenario/resolve/expression_tree.hpp"

namespace fsdp_cts {
namespace {

using Value = nlohmann::ordered_json;

std::string shown(const Value& value) {
  return value.is_string() ? "'" + value.get<std::string>() + "'" : value.dump();
}

[[noreturn]] void cannot(const std::string& symbol, const Value& a, const Value& b) {
  throw ExpressionError("cannot evaluate " + shown(a) + " " + symbol + " " + shown(b));
}

bool boolean(const Value& value, const std::string& symbol) {
  if (!value.is_boolean())
    throw ExpressionError("'" + symbol + "' needs true or false, found " + shown(value));
  return value.get<bool>();
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return a == b;
  return a.type() == b.type() && a == b;
}

Value integer_arithmetic(const std::string& symbol, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  const bool overflow = symbol == "+"   ? __builtin_add_overflow(a, b, &result)
                        : symbol == "-" ? __builtin_sub_overflow(a, b, &result)
                        : symbol == "*" ? __builtin_mul_overflow(a, b, &result)
                                        : false;
  if (overflow)
    throw ExpressionError(std::to_string(a) + " " + symbol + " " + std::to_string(b) + " overflows");
  if (symbol == "/") {
    // The one quotient that does not fit is that of the smallest number by -1; % is not defined for it
    // either.
    if (b == -1) return integer_arithmetic("-", 0, a);
    if (b == 0 || a % b != 0)
      throw ExpressionError(std::to_string(a) + " / " + std::to_string(b) + " is not a whole number");
    return a / b;
  }
  if (symbol == "%") {
    if (b <= 0) throw ExpressionError("% needs a divisor greater than 0, found " + std::to_string(b));
    return (a % b + b) % b;
  }
  return result;
}

Value arithmetic(const std::string& symbol, const Value& a, const Value& b) {
  if (a.is_number_integer() && b.is_number_integer())
    return integer_arithmetic(symbol, a.get<std::int64_t>(), b.get<std::int64_t>());
  if (!a.is_number() || !b.is_number() || symbol == "%") cannot(symbol, a, b);
  const double x = a.get<double>(), y = b.get<double>();
  const double result = symbol == "+" ? x + y : symbol == "-" ? x - y : symbol == "*" ? x * y : x / y;
  if (!std::isfinite(result)) cannot(symbol, a, b);
  return result;
}

bool compare(const std::string& symbol, const Value& a, const Value& b) {
  if (!a.is_number() || !b.is_number()) cannot(symbol, a, b);
  if (symbol == "<") return a < b;
  if (symbol == "<=") return a <= b;
  if (symbol == ">") return a > b;
  return a >= b;
}

const std::vector<std::string> functions = {"min", "max", "ceil_div"};

Value call(const std::string& function, const Value& a, const Value& b) {
  if (function != "ceil_div") {
    const bool first = compare(function == "min" ? "<=" : ">=", a, b);
    return first ? a : b;
  }
  if (!a.is_number_integer() || !b.is_number_integer() || b <= 0 || a < 0)
    throw ExpressionError("ceil_div needs whole numbers, the divisor greater than 0; found " + shown(a) +
                          ", " + shown(b));
  const auto x = a.get<std::int64_t>(), y = b.get<std::int64_t>();
  return x / y + (x % y != 0);
}

template <typename Names>
std::string listed(const Names& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

void check_names(const Expression& expression, const Scope& scope) {
  if (expression.kind == Expression::Kind::name && !scope.count(expression.symbol)) {
    std::vector<std::string> known;
    for (const auto& entry : scope) known.push_back(entry.first);
    const std::string near = nearest_name(expression.symbol, known);
    throw ExpressionError("unknown name '" + expression.symbol + "'" +
                          (near.empty() ? "" : ", did you mean '" + near + "'?") + "; known are " +
                          listed(known));
  }
  if (expression.kind == Expression::Kind::call) {
    if (std::find(functions.begin(), functions.end(), expression.symbol) == functions.end())
      throw ExpressionError("unknown function '" + expression.symbol + "'; known are " + listed(functions));
    if (expression.parts.size() != 2) throw ExpressionError(expression.symbol + " takes two arguments");
  }
  for (const Expression& part : expression.parts) check_names(part, scope);
}

Value evaluate(const Expression& expression, const Scope& scope) {
  const auto part = [&](std::size_t i) { return evaluate(expression.parts[i], scope); };
  const std::string& symbol = expression.symbol;
  switch (expression.kind) {
    case Expression::Kind::literal:
      return expression.value;
    case Expression::Kind::name:
      return scope.find(symbol)->second;
    case Expression::Kind::list: {
      Value result = Value::array();
      for (std::size_t i = 0; i < expression.parts.size(); ++i) result.push_back(part(i));
      return result;
    }
    case Expression::Kind::call:
      return call(symbol, part(0), part(1));
    case Expression::Kind::conditional:
      return boolean(part(0), "?") ? part(1) : part(2);
    case Expression::Kind::unary:
      if (symbol == "!") return !boolean(part(0), symbol);
      return arithmetic("-", 0, part(0));
    case Expression::Kind::binary:
      break;
  }
  if (symbol == "||") return boolean(part(0), symbol) || boolean(part(1), symbol);
  if (symbol == "&&") return boolean(part(0), symbol) && boolean(part(1), symbol);
  const Value a = part(0), b = part(1);
  if (symbol == "==") return equal(a, b);
  if (symbol == "!=") return !equal(a, b);
  if (symbol == "in") {
    if (!b.is_array()) cannot(symbol, a, b);
    return std::any_of(b.begin(), b.end(), [&](const Value& item) { return equal(a, item); });
  }
  if (symbol[0] == '<' || symbol[0] == '>') return compare(symbol, a, b);
  return arithmetic(symbol, a, b);
}

// An expression is evaluated for every case of its scenario; it is parsed once. Threads have their own, since
// files are read side by side.
const Expression& parsed(std::string_view text) {
  thread_local std::map<std::string, Expression, std::less<>> known;
  auto found = known.find(text);
  if (found == known.end()) found = known.emplace(text, parse_expression(text)).first;
  return found->second;
}

// Where the expression that opens at `open` ends: at the first brace outside a string.
std::size_t closing_brace(std::string_view text, std::size_t open) {
  bool in_string = false;
  for (std::size_t i = open; i < text.size(); ++i) {
    if (text[i] == '\'') in_string = !in_string;
    if (text[i] == '}' && !in_string) return i;
  }
  throw ExpressionError("'${' without '}' in '" + std::string(text) + "'");
}

void add_names(const Expression& expression, std::set<std::string>& names) {
  if (expression.kind == Expression::Kind::name) names.insert(expression.symbol);
  for (const Expression& part : expression.parts) add_names(part, names);
}

// Calls `plain` for the text between expressions and `inner` for what stands in each ${…}, in their order.
template <typename Plain, typename Inner>
void for_parts(std::string_view text, Plain plain, Inner inner) {
  std::size_t at = 0;
  for (;;) {
    const std::size_t open = text.find("${", at);
    plain(text.substr(at, open == std::string_view::npos ? open : open - at));
    if (open == std::string_view::npos) return;
    const std::size_t close = closing_brace(text, open);
    inner(text.substr(open + 2, close - open - 2));
    at = close + 1;
  }
}

}  // namespace

std::set<std::string> names_in_expression(std::string_view text) {
  std::set<std::string> names;
  add_names(parsed(text), names);
  return names;
}

std::set<std::string> names_in_text(std::string_view text) {
  std::set<std::string> names;
  for_parts(
      text, [](std::string_view) {},
      [&](std::string_view inner) { names.merge(names_in_expression(inner)); });
  return names;
}

Value evaluate_expression(std::string_view text, const Scope& scope) {
  const Expression& expression = parsed(text);
  check_names(expression, scope);
  return evaluate(expression, scope);
}

Value interpolate(std::string_view text, const Scope& scope) {
  if (text.starts_with("${") && closing_brace(text, 0) + 1 == text.size())
    return evaluate_expression(text.substr(2, text.size() - 3), scope);
  std::string result;
  for_parts(
      text, [&](std::string_view plain) { result += plain; },
      [&](std::string_view inner) { result += scalar_text(evaluate_expression(inner, scope)); });
  return result;
}

std::string scalar_text(const Value& scalar) {
  if (scalar.is_string()) return scalar.get<std::string>();
  if (scalar.is_structured())
    throw ExpressionError("a list or map cannot stand inside text: " + scalar.dump());
  return scalar.dump();
}

}  // namespace fsdp_cts
