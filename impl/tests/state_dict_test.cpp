// Saving and loading, sharded and whole; refusals change nothing.
#include "fsdp/state_dict.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/models.hpp"
#include "tests/ranks.hpp"

namespace fsdp::testing {
namespace {

using ::testing::HasSubstr;
using Dims = std::vector<int64_t>;

/// With a buffer and an odd shape.
struct WithBufferImpl : torch::nn::Module {
  WithBufferImpl() : layer(register_module("layer", Linear(3, 5))) {
    counter = register_buffer("counter", at::zeros({2}, at::kLong));
  }
  at::Tensor forward(const at::Tensor& x) { return layer(x); }
  Linear layer;
  at::Tensor counter;
};
FSDP_HOOKED_MODULE(WithBuffer, WithBufferImpl);

WithBuffer make(const Rank& rank, int64_t salt) {
  WithBuffer model;
  initialize(*model, salt);
  model->counter.fill_(salt);
  fully_shard(model->layer, {.mesh = rank.mesh()});
  fully_shard(model, {.mesh = rank.mesh()});
  return model;
}

StateDict whole_state(int64_t salt) {
  WithBuffer model;
  initialize(*model, salt);
  model->counter.fill_(salt);
  return full_state_dict(*model);
}

void expect_same(const StateDict& a, const StateDict& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].first, b[i].first);
    EXPECT_TRUE(at::equal(a[i].second, b[i].second)) << a[i].first;
  }
}

class StateDicts : public ::testing::TestWithParam<int64_t> {};

TEST_P(StateDicts, FullRoundTrip) {
  run_ranks(GetParam(), [](const Rank& rank) {
    auto model = make(rank, 1);
    const auto saved = full_state_dict(*model);
    expect_same(saved, whole_state(1));
    EXPECT_EQ(saved[0].first, "layer.weight");
    EXPECT_EQ(saved[2].first, "counter");
    load_full_state_dict(*model, whole_state(7));
    expect_same(full_state_dict(*model), whole_state(7));
    expect_same(saved, whole_state(1));
    const auto reference = [](const at::Tensor& x) {
      WithBuffer plain;
      initialize(*plain, 7);
      return plain(x);
    };
    EXPECT_TRUE(at::equal(model(values({2, 3}, 0)), reference(values({2, 3}, 0))))
        << "loaded shards are gathered";
  });
}

TEST_P(StateDicts, WholeForTheFirstRankAlone) {
  run_ranks(GetParam(), [](const Rank& rank) {
    auto model = make(rank, 1);
    const auto saved = full_state_dict(*model, {.rank0_only = true, .offload_to_cpu = true});
    expect_same(saved, rank.rank == 0 ? whole_state(1) : StateDict());
  });
}

TEST_P(StateDicts, OfTheFirstRankForAll) {
  run_ranks(GetParam(), [](const Rank& rank) {
    auto model = make(rank, 1);
    broadcast_full_state_dict(*model, rank.rank == 0 ? whole_state(7) : StateDict());
    expect_same(full_state_dict(*model), whole_state(7));
    const auto foreign = rank.rank == 0 ? StateDict{{"layer.bios", at::ones({5})}} : whole_state(1);
    EXPECT_THAT(message_of<RuntimeError>([&] { broadcast_full_state_dict(*model, foreign); }),
                HasSubstr("Unexpected key(s) in state_dict: ['layer.bios']"))
        << "on every rank";
    expect_same(full_state_dict(*model), whole_state(7));
  });
}

TEST(StateDictsOfReplicas, OfTheFirstRankForAll) {
  run_ranks(4, [](const Rank& rank) {
    WithBuffer model;
    initialize(*model, 1);
    fully_shard(model, {.mesh = DeviceMesh(rank.recorded, {2, 2}, {"replicate", "shard"})});
    broadcast_full_state_dict(*model, rank.rank == 0 ? whole_state(7) : StateDict());
    expect_same(full_state_dict(*model), whole_state(7));
  });
}

TEST(StateDictRefusals, NobodyToBroadcastTo) {
  run_ranks(2, [](const Rank&) {
    WithBuffer model;
    EXPECT_THAT(message_of<InvalidState>([&] { broadcast_full_state_dict(*model, {}); }),
                HasSubstr("expects a module with parameters that fully_shard manages"));
  });
}

TEST_P(StateDicts, ShardedRoundTrip) {
  run_ranks(GetParam(), [](const Rank& rank) {
    auto model = make(rank, 1);
    const auto weight = model->layer->weight;
    model(values({2, 3}, 0));  // leaves the root, but not its shards, as they are
    auto unit = FSDPModule::of(*model->layer);
    unit.unshard();
    ShardedStateDict saved;
    for (const auto& [name, entry] : sharded_state_dict(*model)) {
      saved.emplace_back(name, ShardedTensor{entry.local.clone(), entry.layout, entry.group});
    }
    EXPECT_EQ(unit.sharded_state(), ShardedState::sharded) << "saving reshards";
    const auto chunk = (5 + rank.world - 1) / rank.world;
    EXPECT_EQ(saved[0].second.local.size(0), std::max<int64_t>(0, std::min(chunk, 5 - rank.rank * chunk)))
        << "no padding";
    EXPECT_EQ(saved[2].second.group, nullptr);
    load_full_state_dict(*model, whole_state(7));
    load_sharded_state_dict(*model, saved);
    expect_same(full_state_dict(*model), whole_state(1));
    EXPECT_TRUE(weight.is_same(model->layer->weight));
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, StateDicts, ::testing::Values(1, 2, 4));

TEST(StateDictRefusals, NameEveryFaultAndChangeNothing) {
  run_ranks(2, [](const Rank& rank) {
    auto model = make(rank, 1);
    auto state = whole_state(7);
    state[0].second = at::ones({5, 4});
    state[1].first = "layer.bios";
    const auto message = message_of<RuntimeError>([&] { load_full_state_dict(*model, state); });
    EXPECT_THAT(message, HasSubstr("Error(s) in loading state_dict for "));
    EXPECT_THAT(message, HasSubstr("Missing key(s) in state_dict: ['layer.bias']"));
    EXPECT_THAT(message, HasSubstr("Unexpected key(s) in state_dict: ['layer.bios']"));
    EXPECT_THAT(
        message,
        HasSubstr("size mismatch for layer.weight: the state has shape torch.Size([5, 4]), the module "
                  "expects torch.Size([5, 3])"));
    expect_same(full_state_dict(*model), whole_state(1));

    auto twice = whole_state(7);
    twice.push_back(twice[0]);
    EXPECT_THAT(message_of<RuntimeError>([&] { load_full_state_dict(*model, twice); }),
                HasSubstr("Key given twice"));
    expect_same(full_state_dict(*model), whole_state(1));
  });
}

TEST(StateDictRefusals, ShardsOfAnotherRankOrWorld) {
  run_ranks(2, [](const Rank& rank) {
    auto model = make(rank, 1);
    auto state = sharded_state_dict(*model);
    state[0].second.local = at::ones({rank.rank == 0 ? 2 : 3, 3});
    state[0].second.layout.start = rank.rank == 0 ? 3 : 0;
    state[0].second.layout.length = rank.rank == 0 ? 2 : 3;
    EXPECT_THAT(message_of<RuntimeError>([&] { load_sharded_state_dict(*model, state); }),
                HasSubstr("layout mismatch for layer.weight"));
    state[0].second.layout = {{5, 3}, 0, 0, 5, 5};
    state[0].second.local = at::ones({5, 3});
    EXPECT_THAT(message_of<RuntimeError>([&] { load_sharded_state_dict(*model, state); }),
                HasSubstr("another number of ranks"));
    expect_same(full_state_dict(*model), whole_state(1));
  });
}

TEST(MetaInit, MaterializedShardByShard) {
  run_ranks(4, [](const Rank& rank) {
    WithBuffer model;
    const auto first = model->layer->weight;
    first.mutable_grad() = at::ones({5, 3});
    to_meta(*model);
    EXPECT_TRUE(first.is_meta() && first.is_same(model->layer->weight) && first.requires_grad());
    EXPECT_FALSE(first.mutable_grad().defined());
    EXPECT_TRUE(model->counter.is_meta() && model->counter.scalar_type() == at::kLong);
    const auto weight = model->layer->weight;
    fully_shard(model->layer, {.mesh = rank.mesh()});
    fully_shard(model, {.mesh = rank.mesh()});
    EXPECT_TRUE(weight.is_meta());
    EXPECT_EQ(weight.size(0), rank.rank == 3 ? 0 : rank.rank == 2 ? 1 : 2);
    EXPECT_THROW(model(values({2, 3}, 0)), RuntimeError);
    to_empty(*model, at::kCPU);
    EXPECT_TRUE(weight.is_cpu() && weight.is_same(model->layer->weight));
    load_full_state_dict(*model, whole_state(7));
    expect_same(full_state_dict(*model), whole_state(7));
    model(values({2, 3}, 0)).sum().backward();
    EXPECT_TRUE(weight.grad().defined());
    EXPECT_EQ(message_of<InvalidState>([&] { to_meta(*model); }),
              "to_meta must be called before sharding: the module is sharded.");
    EXPECT_TRUE(weight.is_cpu());

    WithBuffer whole;  // one unit: its layer is none itself
    fully_shard(whole, {.mesh = rank.mesh()});
    EXPECT_EQ(message_of<InvalidState>([&] { to_meta(*whole->layer); }),
              "to_meta must be called before sharding: 'weight' is sharded.");
    EXPECT_TRUE(whole->layer->weight.is_cpu());
  });
}

}  // namespace
}  // namespace fsdp::testing
