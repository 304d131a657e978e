#include "harness/sdk/cpp/module.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "harness/sdk/cpp/build_model.hpp"
#include "harness/sdk/cpp/tests/case_in_memory.hpp"

namespace fsdp_cts::sdk {
namespace {

struct Built {
  std::shared_ptr<Recorder> recorder = std::make_shared<Recorder>();
  std::shared_ptr<Module> module;
};

Built build(const Json& description, const std::map<std::string, at::Tensor>& values,
            c10::DeviceType device = at::kCPU) {
  auto tensors = std::make_shared<TensorMap>();
  for (const auto& [name, value] : values) (*tensors)[name] = to_host(value);
  Built built;
  built.module = build_model(description, Data(tensors, 0), "model", device, built.recorder);
  return built;
}

std::vector<std::string> names_of(const std::vector<Slot>& slots) {
  std::vector<std::string> names;
  for (const Slot& slot : slots) names.push_back(slot.name);
  return names;
}

void expect_equal(const at::Tensor& actual, const at::Tensor& expected) {
  EXPECT_TRUE(at::equal(actual, expected)) << actual << "\nwhere this was expected:\n" << expected;
}

TEST(Module, LinearIsTheMatrixProductPlusBias) {
  const Built built = build(
      linear(2, 2), {{"parameters/model/weight", at::tensor({1., 2., 3., 4.}).to(at::kFloat).view({2, 2})},
                     {"parameters/model/bias", at::tensor({10.f, 20.f})}});
  expect_equal(built.module->forward(at::tensor({1.f, 1.f, 2.f, 0.f}).view({2, 2})),
               at::tensor({13.f, 27.f, 12.f, 26.f}).view({2, 2}));
}

TEST(Module, HooksRunInOrderAroundTheBody) {
  const Built built = build({{"type", "Identity"}, {"class", "Identity"}}, {});
  const auto times = [](double factor, double plus) {
    return [factor, plus](Tensors t) { return Tensors{t[0] * factor + plus}; };
  };
  built.module->add_pre_forward_hook(times(2, 0));
  built.module->add_pre_forward_hook(times(1, 3));
  built.module->add_pre_forward_hook(times(1, 100), /*prepend=*/true);
  built.module->add_post_forward_hook(times(10, 0));
  expect_equal(built.module->forward(at::tensor({1.f})), at::tensor({((1.f + 100) * 2 + 3) * 10}));
}

TEST(Module, FailedForwardsAreToldOf) {
  const Built built = build(linear(1, 1, false), {{"parameters/model/weight", at::full({1, 1}, 2.f)}});
  int failed = 0;
  built.module->add_failed_forward_hook([&failed] { ++failed; });
  EXPECT_THROW(built.module->forward(at::full({1, 3}, 3.f)), c10::Error);
  EXPECT_EQ(failed, 1);
  built.module->forward(at::full({1, 1}, 3.f));
  EXPECT_EQ(failed, 1);
}

TEST(Module, BodiesReadTheParameterThatIsInTheSlotNow) {
  const Built built = build(linear(1, 1, false), {{"parameters/model/weight", at::full({1, 1}, 2.f)}});
  expect_equal(built.module->forward(at::full({1, 1}, 3.f)), at::full({1, 1}, 6.f));
  built.module->set_parameter("weight", at::full({1, 1}, 5.f));
  expect_equal(built.module->forward(at::full({1, 1}, 3.f)), at::full({1, 1}, 15.f));
  EXPECT_THROW(built.module->parameter("bias"), c10::IndexError);
}

TEST(Module, BodiesKeepWhatALibraryTakesOutOfTheRegistration) {
  struct Registration : torch::nn::Module {
    static void take_out(torch::nn::Module& module, const std::string& name) {
      (module.*&Registration::parameters_).erase(name);
    }
  };
  const Built built = build(linear(1, 1, false), {{"parameters/model/weight", at::full({1, 1}, 2.f)}});
  built.module->set_parameter("weight", at::full({1, 1}, 5.f));
  Registration::take_out(*built.module, "weight");
  EXPECT_TRUE(built.module->parameter_names().empty());
  expect_equal(built.module->forward(at::full({1, 1}, 3.f)), at::full({1, 1}, 15.f));
  EXPECT_THROW(built.module->set_parameter("weight", at::full({1, 1}, 1.f)), c10::IndexError);
  EXPECT_THROW(built.module->parameter("bias"), c10::IndexError);
}

TEST(Module, ParametersComeInRegistrationOrderAndTiedOnesOnce) {
  const Json description = {{"type", "Graph"},
                            {"class", "Tied"},
                            {"inputs", {"x"}},
                            {"parameters", Json::array({Json::array({"scale", {{"shape", {2}}}})})},
                            {"children", Json::array({Json::array({"first", linear(2, 2, false)}),
                                                      Json::array({"second", linear(2, 2)})})},
                            {"tie", Json::array({Json::array({"second.weight", "first.weight"})})},
                            {"forward", Json::array({{{"call", "first"}, {"args", {"x"}}, {"to", "a"}},
                                                     {{"call", "second"}, {"args", {"a"}}, {"to", "b"}},
                                                     {{"parameter", "scale"}, {"to", "s"}},
                                                     {{"mul", {"b", "s"}}, {"to", "y"}}})},
                            {"output", "y"}};
  const Built built = build(description, {{"parameters/model/scale", at::full({2}, 3.f)},
                                          {"parameters/model/first.weight", at::eye(2) * 2},
                                          {"parameters/model/second.bias", at::full({2}, 1.f)}});
  EXPECT_EQ(names_of(parameter_slots(*built.module)),
            (std::vector<std::string>{"scale", "first.weight", "second.bias"}));
  EXPECT_EQ(parameter_slots_with_ties(*built.module).size(), 4u);
  expect_equal(built.module->forward(at::ones({1, 2})), at::full({1, 2}, (1.f * 2 * 2 + 1) * 3));
  EXPECT_EQ(built.module->child("second").path(), "second");
}

TEST(Module, GraphOpsCastAddBuffersAndRecord) {
  const Json description = {
      {"type", "Graph"},
      {"class", "Recorder"},
      {"inputs", {"x"}},
      {"buffers",
       Json::array({Json::array({"offset", {{"shape", {2}}, {"dtype", "int64"}, {"fill", "ones"}}})})},
      {"children", Json::array({Json::array({"l", linear(2, 2)})})},
      {"forward", Json::array({{{"record", "x"}, {"as", "raw"}},
                               {{"cast", "x"}, {"like_weight_of", "l"}, {"to", "c"}},
                               {{"record", "c"}, {"as", "cast"}},
                               {{"record_parameters", "l"}, {"as", "seen"}},
                               {{"buffer", "offset"}, {"to", "o"}},
                               {{"add", {"c", "o"}}, {"to", "sum"}},
                               {{"ones", {1, 2}}, {"dtype", "float16"}, {"to", "half"}},
                               {{"record", "half"}, {"as", "made"}},
                               {{"cast", "sum"}, {"dtype", "float64"}, {"to", "wide"}},
                               {{"relu", "wide"}, {"to", "y"}}})},
      {"output", Json::array({"y", "half"})}};
  const Built built = build(description, {{"parameters/model/l.weight", at::eye(2)},
                                          {"parameters/model/l.bias", at::zeros({2})},
                                          {"buffers/model/offset", at::ones({2}, at::kLong)}});
  const Tensors outputs =
      built.module->forward(Tensors{at::tensor({-3.f, 4.f}).view({1, 2}).to(at::kBFloat16)});
  ASSERT_EQ(outputs.size(), 2u);
  expect_equal(outputs[0], at::tensor({0., 5.}, at::kDouble).view({1, 2}));
  EXPECT_EQ(built.recorder->dtypes, (std::map<std::string, std::string>{
                                        {"raw", "bfloat16"}, {"cast", "float32"}, {"made", "float16"}}));
  EXPECT_EQ(built.recorder->parameters.at("seen"), (Recorder::Parameters{{"weight", {2, 2}}, {"bias", {2}}}));
}

TEST(Module, AttentionOfOneHeadIsTheSoftmaxOfScaledProducts) {
  // Query, key and value projections are the identity, so the formula can be written down with the inputs
  // alone.
  const at::Tensor identity = at::cat({at::eye(2), at::eye(2), at::eye(2)});
  const Built built =
      build({{"type", "MultiheadAttention"}, {"class", "MultiheadAttention"}, {"dim", 2}, {"heads", 1}},
            {{"parameters/model/in_proj_weight", identity},
             {"parameters/model/in_proj_bias", at::zeros({6})},
             {"parameters/model/out_proj.weight", at::eye(2) * 2},
             {"parameters/model/out_proj.bias", at::zeros({2})}});
  EXPECT_EQ(names_of(parameter_slots(*built.module)),
            (std::vector<std::string>{"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"}));
  const at::Tensor query = at::tensor({1.f, 0.f}).view({1, 1, 2});
  const at::Tensor key = at::tensor({1.f, 0.f, 0.f, 1.f}).view({2, 1, 2});
  const at::Tensor value = at::tensor({4.f, 0.f, 0.f, 8.f}).view({2, 1, 2});
  const double first = 1 / (1 + std::exp(-1 / std::sqrt(2.0)));  // softmax over the scores 1/sqrt(2) and 0
  const at::Tensor output = built.module->forward(Tensors{query, key, value}).front();
  EXPECT_NEAR(output[0][0][0].item<float>(), 2 * 4 * first, 1e-6);
  EXPECT_NEAR(output[0][0][1].item<float>(), 2 * 8 * (1 - first), 1e-6);
}

TEST(Module, BatchNormNormalisesInTrainingAndUsesRunningStatisticsInEval) {
  const Built built = build({{"type", "BatchNorm1d"}, {"class", "BatchNorm1d"}, {"features", 1}},
                            {{"parameters/model/weight", at::full({1}, 2.f)},
                             {"parameters/model/bias", at::full({1}, 1.f)},
                             {"buffers/model/running_mean", at::zeros({1})},
                             {"buffers/model/running_var", at::ones({1})},
                             {"buffers/model/num_batches_tracked", at::zeros({}, at::kLong)}});
  const at::Tensor input = at::tensor({1.f, 3.f}).view({2, 1});
  const at::Tensor trained = built.module->forward(input);
  EXPECT_NEAR(trained[0].item<float>(), 1 - 2 / std::sqrt(1 + 1e-5), 1e-6);
  EXPECT_EQ(built.module->buffer("num_batches_tracked").item<std::int64_t>(), 1);
  EXPECT_NEAR(built.module->buffer("running_mean").item<float>(), 0.2, 1e-6);
  EXPECT_NEAR(built.module->buffer("running_var").item<float>(), 0.9 + 0.1 * 2,
              1e-6);  // unbiased variance of 1 and 3 is 2
  built.module->eval();
  EXPECT_NEAR(built.module->forward(input)[0].item<float>(), (1 - 0.2) / std::sqrt(1.1 + 1e-5) * 2 + 1, 1e-5);
  EXPECT_THROW(built.module->forward(at::ones({2, 1, 1, 1})), c10::ValueError);
}

TEST(Module, LayerNormConvolutionAndEmbeddingHaveTheDescribedShapes) {
  const Built norm =
      build({{"type", "LayerNorm"}, {"class", "LayerNorm"}, {"dim", 2}},
            {{"parameters/model/weight", at::full({2}, 3.f)}, {"parameters/model/bias", at::full({2}, 1.f)}});
  EXPECT_NEAR(norm.module->forward(at::tensor({5.f, 7.f}).view({1, 2}))[0][1].item<float>(),
              3 / std::sqrt(1 + 1e-5) + 1, 1e-5);
  const Built convolution =
      build({{"type", "Conv2d"}, {"class", "Conv2d"}, {"in", 1}, {"out", 2}, {"kernel", 3}},
            {{"parameters/model/weight", at::ones({2, 1, 3, 3})},
             {"parameters/model/bias", at::tensor({0.f, 1.f})}});
  expect_equal(convolution.module->forward(at::ones({1, 1, 3, 3})),
               at::tensor({9.f, 10.f}).view({1, 2, 1, 1}));
  const Built embedding = build({{"type", "Embedding"}, {"class", "Embedding"}, {"num", 3}, {"dim", 1}},
                                {{"parameters/model/weight", at::tensor({5.f, 6.f, 7.f}).view({3, 1})}});
  expect_equal(embedding.module->forward(at::tensor({2, 0})), at::tensor({7.f, 5.f}).view({2, 1}));
}

TEST(Module, ContainersThatAreNotCallableSaySo) {
  const Built built = build({{"type", "ModuleList"},
                             {"class", "ModuleList"},
                             {"children", Json::array({Json::array({"0", linear(1, 1, false)})})}},
                            {{"parameters/model/0.weight", at::ones({1, 1})}});
  EXPECT_THROW(built.module->forward(at::ones({1})), c10::NotImplementedError);
}

TEST(Module, BuildingSaysWhatIsMissing) {
  EXPECT_THROW(build({{"type", "Unheard"}, {"class", "Unheard"}, {"inputs", Json::array()}}, {}),
               std::invalid_argument);
  EXPECT_THROW(build(linear(2, 2), {}), std::invalid_argument);
  EXPECT_THROW(build(linear(2, 2, false), {{"parameters/model/weight", at::ones({3, 2})}}),
               std::invalid_argument);
}

TEST(Module, OnMetaOnlyShapes) {
  const Built built = build(linear(2, 3), {}, at::kMeta);
  EXPECT_TRUE(built.module->parameter("weight").is_meta());
  EXPECT_EQ(built.module->parameter("weight").sizes(), (at::IntArrayRef{3, 2}));
}

TEST(Module, ARanksOwnValuesWinAndWideningWidens) {
  const auto tensors = std::make_shared<TensorMap>();
  (*tensors)["parameters/model/weight"] = to_host(at::full({1, 1}, 1.f));
  (*tensors)["parameters/model/weight@1"] = to_host(at::full({1, 1}, 7.f));
  const auto weight = [&](int rank, bool widen) {
    return build_model(linear(1, 1, false), Data(tensors, rank, widen), "model", at::kCPU,
                       std::make_shared<Recorder>())
        ->parameter("weight");
  };
  EXPECT_EQ(weight(0, false).item<float>(), 1);
  EXPECT_EQ(weight(1, false).item<float>(), 7);
  EXPECT_EQ(weight(1, true).scalar_type(), at::kDouble);
}

}  // namespace
}  // namespace fsdp_cts::sdk
