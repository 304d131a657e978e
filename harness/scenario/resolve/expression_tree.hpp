// Expressions as a tree. Internal to expression.cpp and its parser.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "harness/scenario/resolve/expression.hpp"

namespace fsdp_cts {

struct Expression {
  enum class Kind { literal, name, list, call, unary, binary, conditional };
  Kind kind = Kind::literal;
  std::string symbol;             // name, function or operator
  nlohmann::ordered_json value;   // of a literal
  std::vector<Expression> parts;  // operands, in order of writing
};

// Throws ExpressionError naming the place.
Expression parse_expression(std::string_view text);

}  // namespace fsdp_cts
