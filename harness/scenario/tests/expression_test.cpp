#include "harness/scenario/resolve/expression.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/scenario/read/nearest_name.hpp"

namespace fsdp_cts {
namespace {

using Value = nlohmann::ordered_json;
using testing::HasSubstr;

const Scope scope = {{"world", 4},      {"flag", true}, {"dim", 16},     {"name", "bf16"},
                     {"none", nullptr}, {"rate", 0.5},  {"list", {1, 2}}};

struct Example {
  const char* text;
  Value value;
};

class Evaluates : public testing::TestWithParam<Example> {};

TEST_P(Evaluates, To) {
  const Value value = evaluate_expression(GetParam().text, scope);
  EXPECT_EQ(value.type(), GetParam().value.type()) << GetParam().text;
  EXPECT_EQ(value, GetParam().value) << GetParam().text;
}

INSTANTIATE_TEST_SUITE_P(
    Expressions, Evaluates,
    testing::Values(
        Example{"1 + 2 * 3", 7}, Example{"(1 + 2) * 3", 9}, Example{"7 - 2 - 1", 4}, Example{"-dim + 1", -15},
        Example{"6 / 3", 2}, Example{"4 / -1", -4}, Example{"9223372036854775807", 9223372036854775807},
        Example{"-7 % 3", 2}, Example{"1.5 * 2", 3.0}, Example{"7 / 2.0", 3.5}, Example{"rate + 1", 1.5},
        Example{"1e-2", 0.01}, Example{"true", true}, Example{"null", nullptr}, Example{"'a b'", "a b"},
        Example{"[1, 'x', [null]]", Value::parse("[1,\"x\",[null]]")}, Example{"world == 4", true},
        Example{"world != 4", false}, Example{"1 == 1.0", true}, Example{"flag == 1", false},
        Example{"none == null", true}, Example{"none == false", false}, Example{"name == 'bf16'", true},
        Example{"2 <= 2", true}, Example{"3 > 3", false}, Example{"!flag || world > 2", true},
        Example{"flag && !flag", false},
        // Only what is needed is evaluated.
        Example{"flag || 1 / 0 > 1", true}, Example{"flag ? 1 : 1 / 0", 1},
        Example{"flag ? world == 2 ? 1 : 2 : 3", 2}, Example{"false ? 1 : true ? 2 : 3", 2},
        Example{"world in [2, 4]", true}, Example{"name in ['fp16']", false}, Example{"2 in list", true},
        Example{"min(world, 3)", 3}, Example{"max(1.5, 1)", 1.5}, Example{"ceil_div(dim + 1, world)", 5},
        Example{"ceil_div(0, 3)", 0}, Example{"1 + 1 == 2 && 2 < 3", true}));

struct Refusal {
  const char* text;
  const char* message;
};

class Refuses : public testing::TestWithParam<Refusal> {};

TEST_P(Refuses, With) {
  try {
    FAIL() << GetParam().text << " gave " << evaluate_expression(GetParam().text, scope);
  } catch (const ExpressionError& error) {
    EXPECT_THAT(error.what(), HasSubstr(GetParam().message));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Expressions, Refuses,
    testing::Values(
        Refusal{"wurld", "unknown name 'wurld', did you mean 'world'?; known are dim, flag, list"},
        Refusal{"flag ? 1 : wurld", "unknown name 'wurld'"},  // also where it is not evaluated
        Refusal{"sqrt(2, 1)", "unknown function 'sqrt'; known are min, max, ceil_div"},
        Refusal{"min(1)", "min takes two arguments"}, Refusal{"7 / 2", "7 / 2 is not a whole number"},
        Refusal{"7 / 0", "7 / 0"}, Refusal{"7.0 / 0", "cannot evaluate"},
        Refusal{"1 % 0", "divisor greater than 0"}, Refusal{"1 && true", "'&&' needs true or false, found 1"},
        Refusal{"!null", "'!' needs true or false"}, Refusal{"'a' + 1", "cannot evaluate 'a' + 1"},
        Refusal{"'a' < 'b'", "cannot evaluate 'a' < 'b'"}, Refusal{"1 in 2", "cannot evaluate 1 in 2"},
        Refusal{"9223372036854775807 + 1", "overflows"},
        Refusal{"9223372036854775808", "is too large for a whole number"},
        Refusal{"(-9223372036854775807 - 1) / -1", "overflows"}, Refusal{"1 +", "missing at the end"},
        Refusal{"(1", "expected ')' at the end"}, Refusal{"1 2", "unexpected '2'"},
        Refusal{"", "missing at the end"}, Refusal{"'open", "a string is not closed"},
        Refusal{"a = b", "unexpected '='"}, Refusal{"1x", "'1x' is not a number"},
        Refusal{"1 ? 2", "expected ':' at the end"}));

TEST(Expression, DeepNestingIsRefusedBeforeTheStackEnds) {
  EXPECT_THROW(evaluate_expression(std::string(100'000, '(') + "1", scope), ExpressionError);
  EXPECT_THROW(evaluate_expression(std::string(100'000, '!') + "flag", scope), ExpressionError);
}

TEST(Interpolate, OneExpressionAloneKeepsItsType) {
  EXPECT_EQ(interpolate("${dim}", scope), Value(16));
  EXPECT_EQ(interpolate("${list}", scope), Value::parse("[1,2]"));
  EXPECT_EQ(interpolate("${none}", scope), Value(nullptr));
}

TEST(Interpolate, TextAroundMakesText) {
  EXPECT_EQ(interpolate("layer.${dim / 4}.${name}", scope), Value("layer.4.bf16"));
  EXPECT_EQ(interpolate("${flag}${rate}", scope), Value("true0.5"));
  EXPECT_EQ(interpolate("plain", scope), Value("plain"));
  EXPECT_EQ(interpolate("${'}'}!", scope), Value("}!"));
  EXPECT_THROW(interpolate("a ${list}", scope), ExpressionError);
  EXPECT_THROW(interpolate("a ${dim", scope), ExpressionError);
}

TEST(NearestName, FindsMisspellingsAndLeavesStrangersAlone) {
  const std::vector<std::string> names = {"reshard_after_forward", "mixed_precision", "modules"};
  EXPECT_EQ(nearest_name("mixed_percision", names), "mixed_precision");
  EXPECT_EQ(nearest_name("module", names), "modules");
  EXPECT_EQ(nearest_name("optimizer", names), "");
}

}  // namespace
}  // namespace fsdp_cts
