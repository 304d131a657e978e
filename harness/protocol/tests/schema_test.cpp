#include "harness/protocol/schema.hpp"

#include <gmock/gmock.h>

namespace fsdp_cts {
namespace {

using Json = Schema::Json;
using ::testing::HasSubstr;

std::string judged(const char* definition, const Json& value) {
  const Schema schema(Json{{"$defs", {{"it", Json::parse(definition)}, {"word", {{"type", "string"}}}}}});
  const auto violation = schema.check(value, "it");
  return violation ? violation->sentence() : "fits";
}

TEST(Schema, EvaluatesEveryKeywordItAccepts) {
  EXPECT_EQ(judged(R"({"type": "integer"})", 3), "fits");
  EXPECT_EQ(judged(R"({"type": "integer"})", 3.5), "found 3.5, expected integer");
  EXPECT_EQ(judged(R"({"type": "integer"})", true), "found true, expected integer");
  EXPECT_EQ(judged(R"({"type": ["string", "null"]})", nullptr), "fits");
  EXPECT_EQ(judged(R"({"type": ["string", "null"]})", 1),
            R"(found 1, expected one of the types "string", "null")");
  EXPECT_EQ(judged(R"({"const": 1})", 2), "found 2, expected 1");
  EXPECT_EQ(judged(R"({"enum": ["a", null]})", nullptr), "fits");
  EXPECT_EQ(judged(R"({"enum": ["a", null]})", "b"), R"(found "b", expected one of "a", null)");
  EXPECT_EQ(judged(R"({"type": "integer", "minimum": 0})", -1), "found -1, expected at least 0");
  EXPECT_EQ(judged(R"({"type": ["integer", "boolean"], "minimum": 1})", false), "fits");
  EXPECT_EQ(judged(R"({"type": "string", "pattern": "^a|b:.+$"})", "b:x"), "fits");
  EXPECT_THAT(judged(R"({"type": "string", "pattern": "^b:.+$"})", "b:"),
              HasSubstr("expected a string like ^b:.+$"));
  EXPECT_EQ(judged(R"({"type": "string", "maxLength": 3})", "äöü"), "fits");
  EXPECT_EQ(judged(R"({"type": "string", "maxLength": 3})", "abcd"),
            R"(found 4 characters beginning with "abcd", expected at most 3 characters)");
  EXPECT_EQ(judged(R"({"required": ["k"]})", Json::object()), R"(found no key "k", expected the keys "k")");
  EXPECT_EQ(judged(R"({"properties": {"k": {"type": "null"}}})", {{"k", 1}}),
            "at /k: found 1, expected null");
  EXPECT_EQ(judged(R"({"additionalProperties": {"type": "null"}})", {{"a/b", 1}}),
            "at /a~1b: found 1, expected null");
  EXPECT_EQ(judged(R"({"items": {"$ref": "#/$defs/word"}})", {"a", 1}), "at /1: found 1, expected string");
  EXPECT_EQ(judged(R"({"prefixItems": [{"type": "string"}], "maxItems": 1})", {"a", 1}),
            "found 2 elements, expected 0 to 1");
  EXPECT_EQ(judged(R"({"minItems": 2})", Json::array({1})), "found 1 elements, expected at least 2");
  EXPECT_EQ(judged(R"({"prefixItems": [{"type": "string"}], "minItems": 1})", {1}),
            "at /0: found 1, expected string");
}

TEST(Schema, MatchesTextOfAnyLength) {
  const char* definition = R"({"type": "string", "pattern": "^(loss|register:.+)$"})";
  EXPECT_EQ(judged(definition, "register:" + std::string(1 << 22, 'a')), "fits");
  EXPECT_THAT(judged(definition, std::string(1 << 22, 'a')), HasSubstr("aaa…, expected a string like"));
}

TEST(Schema, AlternativesReportTheOneThatWentFurthestOrAllOfThem) {
  const char* definition =
      R"({"oneOf": [{"properties": {"what": {"const": "a"}, "x": {"type": "null"}}}, {"properties": {"what": {"const": "b"}}}]})";
  EXPECT_EQ(judged(definition, {{"what", "b"}, {"x", 1}}), "fits");
  EXPECT_EQ(judged(definition, {{"what", "c"}}), R"(at /what: found "c", expected "a" or "b")");
  const char* nested = R"({"oneOf": [{"const": 1}, {"properties": {"x": {"items": {"type": "null"}}}}]})";
  EXPECT_EQ(judged(nested, {{"x", {1}}}), "at /x/0: found 1, expected null");
}

TEST(Schema, RefusesASchemaItWouldNotEvaluateInFull) {
  EXPECT_THROW(judged(R"({"maximum": 3})", 1), std::invalid_argument);
  EXPECT_THROW(judged(R"({"properties": {"a": {"allOf": []}}})", 1), std::invalid_argument);
  EXPECT_THROW(judged(R"({"$ref": "#/$defs/nowhere"})", 1), std::invalid_argument);
  EXPECT_THROW(judged(R"({"type": "string", "pattern": "(a"})", "a"), std::invalid_argument);
  EXPECT_THROW(judged(R"({"type": "string", "pattern": "(a)\\1"})", "aa"), std::invalid_argument);
}

TEST(Schema, EvaluatesKeywordsBesideAReferenceOrAlternatives) {
  const char* beside_alternatives = R"({"oneOf": [{"type": "object"}, {"const": 1}], "required": ["x"]})";
  EXPECT_EQ(judged(beside_alternatives, {{"x", 1}}), "fits");
  EXPECT_THAT(judged(beside_alternatives, Json::object()), HasSubstr("no key \"x\""));
  const char* beside_reference = R"({"description": "short", "$ref": "#/$defs/word", "maxLength": 3})";
  EXPECT_EQ(judged(beside_reference, "abc"), "fits");
  EXPECT_THAT(judged(beside_reference, "abcd"), HasSubstr("at most 3 characters"));
  EXPECT_EQ(judged(beside_reference, 1), "found 1, expected string");
}

TEST(Schema, AnyOfTakesSeveralFitsAndOneOfDoesNot) {
  const Json both = {{"a", 1}, {"b", 2}};
  EXPECT_EQ(judged(R"({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]})", both), "fits");
  EXPECT_THAT(judged(R"({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]})", both),
              HasSubstr("it fits several"));
  EXPECT_EQ(judged(R"({"anyOf": [{"type": "null"}, {"type": "string"}]})", 1),
            "found 1, expected null or string");
}

TEST(Schema, OtherKeysMayBeForbidden) {
  const char* closed = R"({"properties": {"a": {}, "b": {}}, "additionalProperties": false})";
  EXPECT_EQ(judged(closed, {{"a", 1}}), "fits");
  EXPECT_EQ(judged(closed, {{"c", 1}}), R"(found the key "c", expected one of "a", "b")");
}

}  // namespace
}  // namespace fsdp_cts
