// Expected values were computed by another program from conformance/data-formulas.md.
#include "harness/scenario/data/make_data.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <set>

#include "harness/scenario/data/formula.hpp"
#include "harness/scenario/data/fresh_data.hpp"
#include "harness/scenario/tests/conformance_folder.hpp"

namespace fsdp_cts {
namespace {

using testing::ElementsAre;

template <typename T>
std::vector<T> bits(const HostTensor& tensor) {
  std::vector<T> result(tensor.bytes.size() / sizeof(T));
  std::memcpy(result.data(), tensor.bytes.data(), tensor.bytes.size());
  return result;
}

std::vector<double> values(const HostTensor& tensor) {
  std::vector<double> result;
  for (std::int64_t i = 0; i < tensor.numel(); ++i) result.push_back(tensor.element(i));
  return result;
}

std::vector<std::string> names(const TensorMap& tensors) {
  std::vector<std::string> result;
  for (const auto& [name, tensor] : tensors) result.push_back(name);
  return result;
}

// The data of a case with the given data section (indented by two) and two equal instances of a small model.
TensorMap data_of(const std::string& section,
                  const std::string& children = "[{type: Linear, in: 2, out: 2}]") {
  return make_data(
      first_case("id: F2MP/Class/test\nsource: {seed: \"0\", file: x, lines: \"1\"}\nclauses: [A]\nwhy: x\n"
                 "worlds: [2]\nlane: structure\nmodels:\n  a: {type: Sequential, children: " +
                 children + "}\n  b: {type: Sequential, children: " + children + "}\ndata:\n  seed: 42\n" +
                 section + "program: [{build: a}]\nexpect: []\n"));
}

TEST(Stream, NumbersOfALabel) {
  const Stream first("42/inputs/x@0"), second("42/inputs/x@1");
  EXPECT_THAT((std::vector{first.at(0), first.at(1), first.at(2), first.at(3)}),
              ElementsAre(14277775, 15492731, 7131511, 11102870));
  EXPECT_THAT((std::vector{second.at(0), second.at(1)}), ElementsAre(15043226, 1642124));
}

TEST(Formula, EndsOfTheRanges) {
  EXPECT_EQ(ordinary_value(0, 2.0), -2.0);
  EXPECT_EQ(ordinary_value((1 << 24) - 1, 1.0), 1.0 - 0x1p-23);
  EXPECT_EQ(dyadic_value(0, 4, 0.25), -1.0);
  EXPECT_EQ(dyadic_value(8, 4, 0.25), 1.0);
  EXPECT_EQ(dyadic_value(9, 4, 0.25), -1.0);
  EXPECT_EQ(integer_value(7, 3), 1);
}

TEST(MakeData, OrdinaryParametersInFloat32) {
  const TensorMap data = data_of("  parameters: {scale: 0.5}\n");
  EXPECT_THAT(bits<std::uint32_t>(data.at("parameters/a/0.weight")),
              ElementsAre(0xbeeedf20, 0x3e9eacc2, 0xbeae20de, 0xbee5905e));
}

TEST(MakeData, InstancesOfOneDescriptionStartEqual) {
  const TensorMap data = data_of("");
  EXPECT_EQ(data.at("parameters/a/0.weight").bytes, data.at("parameters/b/0.weight").bytes);
}

TEST(MakeData, FanInOfAVectorIsItsLength) {
  const TensorMap data = data_of("", "[{type: Linear, in: 2, out: 3}]");
  EXPECT_THAT(bits<std::uint32_t>(data.at("parameters/a/0.bias")),
              ElementsAre(1040616692u, 1057099531u, 3171027663u));
}

TEST(MakeData, DyadicValuesAreMultiplesOfTheUnit) {
  const TensorMap data = data_of(
      "  formula: dyadic\n  levels: 4\n  unit: 0.25\n  inputs:\n    d: {shape: [2, 4], dtype: bfloat16}\n");
  EXPECT_THAT(values(data.at("inputs/d")), ElementsAre(-0.5, -0.5, -0.75, -0.75, 0.5, 1.0, 0.75, -0.75));
}

TEST(MakeData, SixteenBitInputsAreRoundedOnceFromDouble) {
  const TensorMap brain = data_of("  inputs:\n    b: {shape: [6], dtype: bfloat16, scale: 3.0}\n");
  EXPECT_THAT(bits<std::uint16_t>(brain.at("inputs/b")),
              ElementsAre(0xbf9f, 0xc02d, 0xbfe2, 0xbea9, 0x3cb6, 0x4019));
  const TensorMap half = data_of("  inputs:\n    b: {shape: [6], dtype: float16, scale: 3.0}\n");
  EXPECT_THAT(bits<std::uint16_t>(half.at("inputs/b")),
              ElementsAre(0xbcfc, 0xc166, 0xbf0d, 0xb547, 0x25b4, 0x40c5));
}

TEST(MakeData, IntegerInputs) {
  const TensorMap data = data_of(
      "  inputs:\n    t: {shape: [8], dtype: int64, modulo: 3}\n    i: {shape: [2, 2], dtype: int64, kind: "
      "arange}\n"
      "    m: {shape: [5], dtype: int32, kind: arange, modulo: 2}\n    f: {shape: [2], kind: full, value: "
      "0.5}\n"
      "    z: {shape: [1], kind: zeros}\n    o: {shape: [], kind: ones, dtype: float16}\n");
  EXPECT_THAT(values(data.at("inputs/t")), ElementsAre(0, 2, 1, 0, 1, 0, 2, 0));
  EXPECT_THAT(values(data.at("inputs/i")), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(values(data.at("inputs/m")), ElementsAre(0, 1, 0, 1, 0));
  EXPECT_THAT(values(data.at("inputs/f")), ElementsAre(0.5, 0.5));
  EXPECT_THAT(values(data.at("inputs/z")), ElementsAre(0));
  EXPECT_THAT(values(data.at("inputs/o")), ElementsAre(1));
}

TEST(MakeData, RanksAndIterationsHaveStreamsOfTheirOwn) {
  const TensorMap data = data_of(
      "  inputs:\n    x: {shape: [2], dtype: float64, per_rank: true, per_iteration: 2}\n    y: {shape: "
      "[1]}\n",
      "[]");
  EXPECT_THAT(names(data),
              ElementsAre("inputs/x.0@0", "inputs/x.0@1", "inputs/x.1@0", "inputs/x.1@1", "inputs/y"));
  EXPECT_EQ(data.at("inputs/x.1@0").element(0), (5770973 - 0x1p23) / 0x1p23);
}

TEST(MakeData, GlobsChooseParametersThatDifferByRank) {
  const TensorMap data = data_of("  per_rank: [\"a:*.weight\"]\n");
  EXPECT_THAT(names(data),
              ElementsAre("parameters/a/0.bias", "parameters/a/0.weight@0", "parameters/a/0.weight@1",
                          "parameters/b/0.bias", "parameters/b/0.weight"));
  EXPECT_NE(data.at("parameters/a/0.weight@0").bytes, data.at("parameters/a/0.weight@1").bytes);
}

TEST(MakeData, NormsStartAsNormsDoUnlessTheFormulaIsAskedFor) {
  const std::string children = "[{type: Linear, in: 2, out: 2}, {type: BatchNorm1d, features: 2}]";
  const TensorMap data = data_of("", children);
  EXPECT_THAT(values(data.at("parameters/a/1.weight")), ElementsAre(1, 1));
  EXPECT_THAT(values(data.at("parameters/a/1.bias")), ElementsAre(0, 0));
  EXPECT_THAT(values(data.at("buffers/a/1.running_mean")), ElementsAre(0, 0));
  EXPECT_THAT(values(data.at("buffers/a/1.running_var")), ElementsAre(1, 1));
  EXPECT_THAT(values(data.at("buffers/a/1.num_batches_tracked")), ElementsAre(0));
  EXPECT_EQ(data.at("buffers/a/1.num_batches_tracked").dtype, DType::int64);

  const TensorMap drawn = data_of("  parameters: {norms: formula, scale: 0.5}\n", children);
  EXPECT_THAT(values(drawn.at("parameters/a/1.weight")), ElementsAre(0.9507750272750854, 1.034035563468933));
  EXPECT_THAT(values(drawn.at("parameters/a/1.bias")), ElementsAre(0.09822624921798706, 0.07528989017009735));
}

TEST(MakeData, GraphBuffersHaveTheirFill) {
  const TensorMap data = data_of("",
                                 "[{type: Graph, inputs: [x], forward: [], output: x, buffers: {k: {shape: "
                                 "[2], fill: ones, dtype: float16}, n: {shape: [1]}}}]");
  EXPECT_THAT(values(data.at("buffers/a/0.k")), ElementsAre(1, 1));
  EXPECT_EQ(data.at("buffers/a/0.k").dtype, DType::float16);
  EXPECT_THAT(values(data.at("buffers/a/0.n")), ElementsAre(0));
}

TEST(MakeData, FullOfWhatIsNotFinite) {
  const TensorMap data = data_of(
      "  inputs:\n    x: {shape: [2], kind: full, value: inf}\n    y: {shape: [1], kind: full, value: nan}\n",
      "[]");
  EXPECT_THAT(values(data.at("inputs/x")), testing::Each(std::numeric_limits<double>::infinity()));
  EXPECT_THAT(values(data.at("inputs/y")), testing::Each(testing::IsNan()));
}

TEST(MakeData, BuffersByFormulaMayDifferByRank) {
  const std::string graph =
      "[{type: Graph, inputs: [x], forward: [], output: x, buffers: {drawn: {shape: [8], dtype: int64, "
      "fill: formula}, one: {shape: [1], fill: ones}}}]";
  const TensorMap same = data_of("  formula: dyadic\n  levels: 4\n  unit: 1\n", graph);
  EXPECT_EQ(same.at("buffers/a/0.drawn").bytes, same.at("buffers/b/0.drawn").bytes);
  const std::vector<double> drawn = values(same.at("buffers/a/0.drawn"));
  EXPECT_GT(std::set<double>(drawn.begin(), drawn.end()).size(), 1u);

  const TensorMap data = data_of("  per_rank: [\"a:*\"]\n  formula: dyadic\n  levels: 4\n  unit: 1\n", graph);
  EXPECT_NE(data.at("buffers/a/0.drawn@0").bytes, data.at("buffers/a/0.drawn@1").bytes);
  EXPECT_TRUE(data.contains("buffers/a/0.one"));
  EXPECT_TRUE(data.contains("buffers/b/0.drawn"));
}

TEST(FreshData, AreDrawnFromTheirSeedAndKnownToNoRecording) {
  const Case written = first_case(
      "id: F2MP/Class/test\nsource: {seed: \"0\", file: x, lines: \"1\"}\nclauses: [A]\nwhy: x\nworlds: [2]\n"
      "lane: exact\nmodels:\n  model: {type: Linear, in: 8, out: 8}\ndata:\n  seed: 42\n  formula: dyadic\n  "
      "levels: 3\n"
      "  unit: 0.5\nprogram: [{build: model}, {observe: [full_parameters]}]\n"
      "expect: [{equal: {what: [full_parameters], to: [reference, golden]}}]\n");
  const Case fresh = with_fresh_data(written, 7, 3);
  EXPECT_EQ(fresh.data["seed"], 7000003);
  EXPECT_EQ(fresh.id, written.id);
  EXPECT_EQ(fresh.expect[0]["equal"]["to"], Json({"reference"}));
  const char* weight = "parameters/model/weight";
  const auto drawn = make_data(fresh);
  EXPECT_EQ(values(drawn.at(weight)), values(make_data(with_fresh_data(written, 7, 3)).at(weight)));
  EXPECT_NE(values(drawn.at(weight)), values(make_data(written).at(weight)));
  EXPECT_NE(values(drawn.at(weight)), values(make_data(with_fresh_data(written, 7, 4)).at(weight)));
  EXPECT_NE(values(drawn.at(weight)), values(make_data(with_fresh_data(written, 8, 3)).at(weight)));
  for (const double value : values(drawn.at(weight))) {
    EXPECT_LE(std::abs(value), 1.5);
    EXPECT_EQ(value * 2, std::round(value * 2));
  }
}

}  // namespace
}  // namespace fsdp_cts
