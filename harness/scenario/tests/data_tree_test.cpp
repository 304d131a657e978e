#include "harness/scenario/read/data_tree.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/scenario/read/mistakes.hpp"
#include "harness/scenario/read/yaml_file.hpp"

namespace fsdp_cts {
namespace {

using testing::HasSubstr;

DataTree parse(const std::string& text) {
  Mistakes mistakes;
  DataTree tree = parse_yaml(text, "file.yaml", mistakes);
  EXPECT_TRUE(mistakes.empty()) << text;
  return tree;
}

std::string complaint(const std::string& text) {
  Mistakes mistakes;
  parse_yaml(text, "file.yaml", mistakes);
  try {
    mistakes.throw_if_any();
  } catch (const ScenarioError& error) {
    return error.what();
  }
  return "";
}

TEST(Yaml, PlainScalarsAreTypedQuotedOnesAreText) {
  EXPECT_EQ(
      parse(
          R"([1, -2, +3, 1.5, 1e-2, true, False, null, ~, "1", '2', yes, 1_000, 0x10, .5, 000, inf, "", 1.2.3])")
          .json()
          .dump(),
      R"([1,-2,3,1.5,0.01,true,false,null,null,"1","2","yes","1_000","0x10",0.5,0,"inf","","1.2.3"])");
  EXPECT_EQ(parse("a: >-\n  two\n  lines\nb: |\n  12\nc:\n").json().dump(),
            R"({"a":"two lines","b":"12\n","c":null})");
}

TEST(Yaml, WholeNumbersBeyond64BitsAreRefused) {
  EXPECT_EQ(parse("[9223372036854775807, -9223372036854775808, 1.0e+19]").json().dump(),
            "[9223372036854775807,-9223372036854775808,1e+19]");
  EXPECT_THAT(complaint("a: 1\nb: 9223372036854775808\n"),
              HasSubstr("file.yaml:2: the whole number 9223372036854775808 does not fit into 64 bits"));
  EXPECT_THAT(complaint("- -9223372036854775809\n"), HasSubstr("file.yaml:1: the whole number"));
  EXPECT_THAT(complaint("- +18446744073709551616\n"), HasSubstr("file.yaml:1: the whole number"));
}

TEST(Yaml, EveryValueKnowsItsLine) {
  const DataTree tree = parse("# comment\na: 1\nb:\n  - x\n  -\n    c: 2\nd:\n");
  EXPECT_EQ(tree.find("a")->place.text(), "file.yaml:2");
  EXPECT_EQ(tree.find("b")->items[0].place.line, 4);
  EXPECT_EQ(tree.find("b")->items[1].find("c")->place.line, 6);
  EXPECT_EQ(tree.entries[1].line, 3);
  EXPECT_EQ(tree.find("d")->place.line, 7);
}

TEST(Yaml, MistakesNameTheirLine) {
  EXPECT_THAT(complaint("a: 1\nb: 2\na: 3\n"), HasSubstr("file.yaml:3: key 'a' occurs twice"));
  EXPECT_THAT(complaint("a: [1, 2\nb: 2\n"), HasSubstr("file.yaml:2: not valid YAML"));
  EXPECT_THAT(complaint("? [1]\n: 2\n"), HasSubstr("file.yaml:1: a key must be text"));
  EXPECT_THAT(complaint(std::string(200, '[') + std::string(200, ']')), HasSubstr("nested too deeply"));
  EXPECT_THAT(
      complaint(
          "a: &a [x, x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\n"
          "c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]\n"
          "e: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d]\nf: [*e, *e, *e, *e, *e, *e, *e, *e, *e, *e]\n"),
      HasSubstr("too large"));
}

TEST(Yaml, AliasesAreCopiedOut) {
  EXPECT_EQ(parse("a: &x {b: [1]}\nc: *x\nd: &x 2\ne: [*x, *x]\n").json().dump(),
            R"({"a":{"b":[1]},"c":{"b":[1]},"d":2,"e":[2,2]})");
  EXPECT_THAT(complaint("a: &x 1\nb: *y\n"), HasSubstr("file.yaml:2: *y stands for nothing"));
  EXPECT_THAT(complaint("a: &x [*x]\n"), HasSubstr("file.yaml:1: *x stands for nothing"));
}

TEST(Yaml, AliasesCountAsDeepAsTheyReach) {
  std::string text = "0: &a0 []\n";
  for (int i = 1; i < 5; ++i) {
    const std::string name = std::to_string(i);
    text += name + ": &a" + name + " " + std::string(20, '[') + "*a" + std::to_string(i - 1) +
            std::string(20, ']') + "\n";
  }
  EXPECT_THAT(complaint(text), HasSubstr("file.yaml:4: the data is nested too deeply"));
}

TEST(Yaml, AnchorsWithinAnchorsAreKeptWithinBounds) {
  std::string text = "a: ";
  for (int i = 0; i < 50; ++i) text += "&a" + std::to_string(i) + " [";
  for (int i = 0; i < 5000; ++i) text += "x,";
  EXPECT_THAT(complaint(text + std::string(50, ']') + "\n"), HasSubstr("too large"));
}

TEST(Yaml, AFileIsOneDocument) {
  EXPECT_TRUE(parse("").is_null());
  EXPECT_TRUE(parse("# nothing\n").is_null());
  EXPECT_EQ(parse("---\na: 1\n...\n").json().dump(), R"({"a":1})");
  EXPECT_THAT(complaint("a: 1\n---\nb: 2\n"), HasSubstr("file.yaml:2: a second document"));
}

TEST(Yaml, ScalarsStayTextWhereThatIsAskedFor) {
  Mistakes mistakes;
  EXPECT_EQ(parse_yaml("[2.10, 1e3, true, ~, 2026-12-31, 'x', ]", "file.yaml", mistakes, Scalars::text)
                .json()
                .dump(),
            R"(["2.10","1e3","true","~","2026-12-31","x"])");
  EXPECT_TRUE(parse_yaml("a:\n", "file.yaml", mistakes, Scalars::text).find("a")->is_null());
  EXPECT_TRUE(mistakes.empty());
}

// The examples of RFC 7396, appendix A, as far as their target or patch is a map.
TEST(MergePatch, AsTheRfcSays) {
  const char* const examples[][3] = {
      {R"({"a":"b"})", R"({"a":"c"})", R"({"a":"c"})"},
      {R"({"a":"b"})", R"({"b":"c"})", R"({"a":"b","b":"c"})"},
      {R"({"a":"b"})", R"({"a":null})", R"({})"},
      {R"({"a":"b","b":"c"})", R"({"a":null})", R"({"b":"c"})"},
      {R"({"a":["b"]})", R"({"a":"c"})", R"({"a":"c"})"},
      {R"({"a":"c"})", R"({"a":["b"]})", R"({"a":["b"]})"},
      {R"({"a":{"b":"c"}})", R"({"a":{"b":"d","c":null}})", R"({"a":{"b":"d"}})"},
      {R"({"a":[{"b":"c"}]})", R"({"a":[1]})", R"({"a":[1]})"},
      {R"(["a","b"])", R"(["c","d"])", R"(["c","d"])"},
      {R"({"a":"b"})", R"(["c"])", R"(["c"])"},
      {R"({"a":"foo"})", R"("bar")", R"("bar")"},
      {R"({"e":null})", R"({"a":1})", R"({"e":null,"a":1})"},
      {R"([1,2])", R"({"a":"b","c":null})", R"({"a":"b"})"},
      {R"({})", R"({"a":{"bb":{"ccc":null}}})", R"({"a":{"bb":{}}})"},
  };
  for (const auto& [target, patch, result] : examples) {
    DataTree tree = tree_of(nlohmann::ordered_json::parse(target), {});
    merge_patch(tree, tree_of(nlohmann::ordered_json::parse(patch), {}));
    EXPECT_EQ(tree.json().dump(), result) << target << " patched with " << patch;
  }
}

TEST(MergePatch, KeepsOrderAndTakesLinesFromThePatch) {
  DataTree tree = parse("a: 1\nb: {c: 2, d: 3}\ne: 4\n");
  const DataTree patch = parse("\n\n\n\nf: 5\nb:\n  d: 6\n");
  merge_patch(tree, patch);
  EXPECT_EQ(tree.json().dump(), R"({"a":1,"b":{"c":2,"d":6},"e":4,"f":5})");
  EXPECT_EQ(tree.find("b")->find("d")->place.line, 7);
  EXPECT_EQ(tree.find("b")->find("c")->place.line, 2);
}

}  // namespace
}  // namespace fsdp_cts
