// State of optimizers under fully_shard, by parameter names, and into optimizers that have not stepped yet.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "fsdp/optim.hpp"
#include "fsdp/optim_state.hpp"
#include "tests/formula_gradients.hpp"
#include "tests/models.hpp"
#include "tests/ranks.hpp"

namespace fsdp::testing {
namespace {

using ::testing::HasSubstr;

/// One way to treat them all.
struct Stepper {
  std::function<void()> step;
  std::function<OptimizerState()> state;
  std::function<void(const OptimizerState&)> load;
};
template <class Optimizer>
Stepper stepper(std::shared_ptr<Optimizer> optimizer) {
  return {[=] { optimizer->step(); }, [=] { return optim::state_of(*optimizer); },
          [=](const OptimizerState& state) { optim::load_state(*optimizer, state); }};
}

struct Kind {
  const char* name;
  std::set<std::string> values;
  std::function<Stepper(const std::vector<at::Tensor>&)> make;
};
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all{
      {"SGD",
       {"momentum_buffer"},
       [](const auto& parameters) {
         return stepper(
             std::make_shared<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.1).momentum(0.9)));
       }},
      {"Adam",
       {"step", "exp_avg", "exp_avg_sq"},
       [](const auto& parameters) { return stepper(std::make_shared<torch::optim::Adam>(parameters)); }},
      {"AdamW",
       {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
       [](const auto& parameters) {
         return stepper(std::make_shared<torch::optim::AdamW>(
             parameters, torch::optim::AdamWOptions(0.01).amsgrad(true)));
       }},
      {"fsdp",
       {"step", "exp_avg", "exp_avg_sq"},
       [](const auto& parameters) {
         return stepper(
             std::make_shared<optim::Adam>(std::vector<optim::AdamGroup>{{parameters, {.lr = 0.01}}}));
       }},
  };
  return all;
}

Mlp make(int64_t salt = 0) {
  Mlp model(std::vector<int64_t>{5, 7, 3}, true);
  initialize(*model, salt);
  return model;
}
Mlp make_sharded(const Rank& rank, int64_t salt = 0) {
  auto model = make(salt);
  shard(model, {.mesh = rank.mesh()});
  return model;
}
void step(const torch::nn::Module& model, const Stepper& stepper, int64_t salt) {
  set_gradients(model, salt);
  stepper.step();
}

/// The unsharded optimizer's state, by name.
FullOptimizerState by_name(const torch::nn::Module& model, const OptimizerState& state) {
  FullOptimizerState result;
  for (const auto& entry : model.named_parameters()) {
    for (const auto& [tensor, values] : state) {
      if (tensor.is_same(entry.value())) result.emplace_back(entry.key(), values);
    }
  }
  return result;
}

void expect_same(const FullOptimizerState& actual, const FullOptimizerState& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].first, expected[i].first);
    ASSERT_EQ(actual[i].second.size(), expected[i].second.size()) << actual[i].first;
    for (const auto& [name, value] : expected[i].second)
      EXPECT_TRUE(at::equal(actual[i].second.at(name), value)) << actual[i].first << "/" << name;
  }
}

class OptimizerStates : public ::testing::TestWithParam<int64_t> {};

TEST_P(OptimizerStates, ResumeBitForBit) {
  run_ranks(GetParam(), [](const Rank& rank) {
    for (const auto& kind : kinds()) {
      SCOPED_TRACE(kind.name);
      auto model = make_sharded(rank), whole = make();
      const auto sharded = kind.make(model->parameters()), unsharded = kind.make(whole->parameters());
      EXPECT_TRUE(full_optimizer_state(*model, sharded.state()).empty()) << "before the first step";
      for (const int64_t salt : {1, 2}) {
        step(*model, sharded, salt);
        step(*whole, unsharded, salt);
      }
      for (const auto& stepper : {sharded, unsharded}) {  // counters that six digits do not hold
        auto state = stepper.state();
        for (auto& [parameter, values] : state) {
          if (const auto counter = values.find("step"); counter != values.end())
            counter->second.fill_(1234567);
        }
        stepper.load(state);
      }
      const auto full = full_optimizer_state(*model, sharded.state());
      expect_same(full, by_name(*whole, unsharded.state()));
      std::set<std::string> names;
      for (const auto& [name, value] : full[0].second) names.insert(name);
      EXPECT_EQ(names, kind.values);

      // Into optimizers that never stepped, one by the whole state, one by this rank's part of it.
      const auto parts = sharded_optimizer_state(*model, sharded.state());
      ASSERT_EQ(parts.size(), full.size()) << "on ranks without rows, too";
      const auto values = full_state_dict(*model);
      auto again = make_sharded(rank, 5), once_more = make_sharded(rank, 6);
      load_full_state_dict(*again, values);
      load_full_state_dict(*once_more, values);
      const auto from_full = kind.make(again->parameters()), from_parts = kind.make(once_more->parameters());
      from_full.load(load_full_optimizer_state(*again, full));
      from_parts.load(load_sharded_optimizer_state(*once_more, parts));
      step(*whole, unsharded, 3);
      for (const auto& [resumed, stepper] : {std::pair(again, from_full), {once_more, from_parts}}) {
        expect_same(full_optimizer_state(*resumed, stepper.state()), full);
        step(*resumed, stepper, 3);
        expect_same(full_optimizer_state(*resumed, stepper.state()), by_name(*whole, unsharded.state()));
        expect_equal(*resumed, *whole, /*gradients=*/false);
      }
      step(*model, sharded, 3);
      expect_equal(*model, *whole, /*gradients=*/false);  // the copies were copies
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, OptimizerStates, ::testing::Values(1, 2, 4));

TEST(OptimizerStateOnAnotherDimension, IsCutThere) {
  run_ranks(2, [](const Rank& rank) {
    Mlp model(std::vector<int64_t>{4, 7});
    shard(model, {.mesh = rank.mesh(), .shard_placement_fn = [](const at::Tensor& parameter) {
                    return std::optional<int64_t>(parameter.dim() == 2 ? 1 : 0);
                  }});
    const auto sgd = kinds()[0].make(model->parameters());
    step(*model, sgd, 1);
    const auto full = full_optimizer_state(*model, sgd.state());
    EXPECT_TRUE(at::equal(full[0].second.at("momentum_buffer"), values({7, 4}, 2)));
    const auto part = load_full_optimizer_state(*model, full)[0].second.at("momentum_buffer");
    EXPECT_TRUE(at::equal(part, values({7, 4}, 2).narrow(1, 2 * rank.rank, 2)));
  });
}

TEST(OptimizerStateRefusals, NameEveryFaultAndChangeNothing) {
  run_ranks(2, [](const Rank& rank) {
    auto model = make_sharded(rank);
    const auto& kind = kinds()[1];
    const auto adam = kind.make(model->parameters());
    step(*model, adam, 1);
    const auto full = full_optimizer_state(*model, adam.state());
    auto wrong = full;
    wrong[1].first = "layer0.wait";
    wrong[2].second["exp_avg"] = at::ones({8});
    wrong.push_back(wrong[3]);
    auto message = message_of<RuntimeError>([&] { load_full_optimizer_state(*model, wrong); });
    EXPECT_THAT(message, HasSubstr("Error(s) in loading state_dict for Mlp:"));
    EXPECT_THAT(message, HasSubstr("Unexpected parameter in optimizer state: 'layer0.wait'"));
    EXPECT_THAT(message,
                HasSubstr("size mismatch for layer0.bias/exp_avg: the state has shape torch.Size([8]), "
                          "the module expects torch.Size([7])"));
    EXPECT_THAT(message, HasSubstr("Parameter given twice in optimizer state: 'layer1.weight'"));

    auto parts = sharded_optimizer_state(*model, adam.state());
    parts[0].second.at("exp_avg").layout.start += 1;
    EXPECT_THAT(message_of<RuntimeError>([&] { load_sharded_optimizer_state(*model, parts); }),
                HasSubstr("layout mismatch for scale/exp_avg"));

    auto state = load_full_optimizer_state(*model, full);
    state[0].second.erase("exp_avg_sq");
    state[1].second["momentum_buffer"] = at::ones({1});
    state[2].second["exp_avg"] = at::ones({9});
    state.emplace_back(at::ones({2}), std::map<std::string, at::Tensor>{});
    for (const auto& any : {adam, kinds()[3].make(model->parameters())}) {
      message = message_of<RuntimeError>([&] { any.load(state); });
      EXPECT_THAT(message, HasSubstr("parameter 0 of group 0 lacks 'exp_avg_sq': Adam keeps"));
      EXPECT_THAT(message, HasSubstr("parameter 1 of group 0 has 'momentum_buffer': Adam keeps"));
      EXPECT_THAT(message,
                  HasSubstr("size mismatch for 'exp_avg' of parameter 2 of group 0: the state has shape "
                            "torch.Size([9])"));
      EXPECT_THAT(message, HasSubstr("The state of a tensor of shape torch.Size([2]) is given, which is no "
                                     "parameter of the optimizer"));
    }
    expect_same(full_optimizer_state(*model, adam.state()), full);

    EXPECT_THAT(message_of<RuntimeError>([&] { kinds()[2].make(model->parameters()).load(adam.state()); }),
                HasSubstr("lacks 'max_exp_avg_sq': AdamW keeps"));
    EXPECT_THAT(
        message_of<InvalidArgument>([&] { optim::state_of(torch::optim::RMSprop(model->parameters())); }),
        HasSubstr("torch::optim's SGD, Adam and AdamW"));
  });
}

}  // namespace
}  // namespace fsdp::testing
