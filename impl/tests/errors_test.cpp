// Every refusal, with the words PyTorch's users match on.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>

#include "tests/models.hpp"
#include "tests/ranks.hpp"

namespace fsdp::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

/// One parameter of any kind, used as it is.
struct HolderImpl : torch::nn::Module {
  explicit HolderImpl(const at::Tensor& tensor) { value = register_parameter("value", tensor); }
  at::Tensor forward(const at::Tensor& input) { return input * value.sum(); }
  at::Tensor value;
};
FSDP_HOOKED_MODULE(Holder, HolderImpl);

TEST(Errors, ContainersHaveNoForward) {
  run_ranks(1, [](const Rank& rank) {
    const FullyShardOptions options{.mesh = rank.mesh()};
    torch::nn::ModuleList list;
    torch::nn::ModuleDict dict;
    const std::string text = "fully_shard does not support containers that do not implement forward: ";
    EXPECT_THAT(message_of<InvalidArgument>([&] { fully_shard(list, options); }), StartsWith(text));
    EXPECT_THAT(message_of<InvalidArgument>([&] { fully_shard(dict, options); }), StartsWith(text));
  });
}

TEST(Errors, NobodyCanHookAPlainModule) {
  run_ranks(1, [](const Rank& rank) {
    torch::nn::Linear plain(2, 2);
    EXPECT_THAT(message_of<RuntimeError>([&] { fully_shard(plain, {.mesh = rank.mesh()}); }),
                HasSubstr("fsdp::Hooked"));
    EXPECT_EQ(plain->weight.sizes(), at::IntArrayRef({2, 2})) << "nothing was changed";
  });
}

TEST(Errors, AParameterOfTwoUnits) {
  run_ranks(2, [](const Rank& rank) {
    const auto shared = at::ones({4, 2});
    Holder first(shared), second(shared);
    fully_shard(first, {.mesh = rank.mesh()});
    EXPECT_THAT(message_of<InvalidArgument>([&] { fully_shard(second, {.mesh = rank.mesh()}); }),
                HasSubstr("is already managed by another fully_shard call"));
    EXPECT_FALSE(FSDPModule::is(*second));
  });
}

TEST(Errors, Mesh) {
  run_ranks(1, [](const Rank& rank) {
    Linear layer(2, 2);
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  fully_shard(layer, {.mesh = DeviceMesh(rank.plain, {1, 1, 1})});
                }),
                StartsWith("fully_shard expects a 1D or 2D DeviceMesh but got "));
    EXPECT_EQ(message_of<InvalidState>([&] {
                fully_shard(layer, {.mesh = DeviceMesh(rank.plain, {1, 1})});
              }),
              "Please init the 2D mesh for HSDP with mesh_dim_names specified");
    EXPECT_THAT(message_of<InvalidArgument>([&] { fully_shard(layer); }), HasSubstr("Default process group"));
    EXPECT_THAT(message_of<InvalidArgument>([&] { DeviceMesh(rank.plain, {2}); }),
                HasSubstr("needs 2 ranks"));
  });
}

TEST(Errors, GroupsOfAMeshInTheOtherOrder) {
  run_ranks(4, [](const Rank& rank) {
    const DeviceMesh mesh(rank.plain, {2, 2});
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  DeviceMesh::from_groups(rank.plain, {mesh.group(1), mesh.group(0)});
                }),
                StartsWith("Dimension 0 of a mesh of shape (2, 2) has the ranks "));
    EXPECT_THAT(message_of<InvalidArgument>([&] { DeviceMesh::from_groups(rank.plain, {mesh.group(1)}); }),
                HasSubstr("needs 2 ranks"));
    EXPECT_EQ(DeviceMesh::from_groups(rank.plain, {mesh.group(0), mesh.group(1)}).group(1), mesh.group(1));
  });
}

TEST(Errors, DefaultMeshIsUsed) {
  run_ranks(2, [](const Rank& rank) {
    set_default_communicator(rank.plain);
    Linear layer(4, 4);
    fully_shard(layer);
    EXPECT_EQ(layer->weight.size(0), 2);
  });
}

TEST(Errors, Parameters) {
  run_ranks(2, [](const Rank& rank) {
    const auto refuse = [&](const at::Tensor& value, std::optional<int64_t> dim = std::nullopt) {
      Holder holder(value);
      fully_shard(holder,
                  {.mesh = rank.mesh(), .shard_placement_fn = [dim](const at::Tensor&) { return dim; }});
    };
    EXPECT_EQ(
        message_of<InvalidArgument>([&] { refuse(at::ones({})); }),
        "fully_shard doesn't support scalar parameters. Change value to a 1D tensor with numel equal to 1.");
    EXPECT_EQ(message_of<NotImplemented>([&] {
                refuse(at::ones({2, 3}).t());
              }),
              "FSDP does not support non-contiguous parameters yet: param.shape=torch.Size([3, 2]) "
              "param.stride()=(1, 3)");
    EXPECT_EQ(message_of<NotImplemented>([&] {
                refuse(at::ones({2, 3}), 1);
              }),
              "FSDP does not support uneven sharding on dim 1: torch.Size([2, 3]) (world size: 2)");
    EXPECT_EQ(message_of<InvalidState>([&] {
                refuse(at::ones({2, 3}), 2);
              }),
              "Shard dim 2 is invalid for 2D tensor: torch.Size([2, 3])");
    refuse(at::ones({2, 4}), -1);
  });
}

TEST(Errors, ReshardAfterForward) {
  run_ranks(2, [](const Rank& rank) {
    Linear layer(4, 4);
    const auto with = [&](ReshardAfterForward reshard) {
      return message_of<InvalidArgument>(
          [&] { fully_shard(layer, {.mesh = rank.mesh(), .reshard_after_forward = reshard}); });
    };
    for (const int64_t ranks : {0, -1, 3, 4}) {
      EXPECT_EQ(with(ranks), "If passing reshard_after_forward as an int, it should be a factor of 2, not " +
                                 std::to_string(ranks));
    }
    EXPECT_EQ(layer->weight.size(0), 4) << "nothing was changed";
  });
}

TEST(Errors, AppliedTwice) {
  run_ranks(1, [](const Rank& rank) {
    Linear layer(4, 4);
    fully_shard(layer, {.mesh = rank.mesh()});
    EXPECT_THAT(message_of<InvalidState>([&] { fully_shard(layer, {.mesh = rank.mesh()}); }),
                StartsWith("Each distinct composable distributed API can only be applied to a module once."));
  });
}

TEST(Errors, Deepcopy) {
  run_ranks(1, [](const Rank& rank) {
    Linear layer(4, 4);
    const auto copy = std::dynamic_pointer_cast<Hooked<torch::nn::LinearImpl>>(layer->clone());
    ASSERT_NE(copy, nullptr) << "an unsharded module can be copied, hooks and all";
    EXPECT_TRUE(at::equal(copy->weight, layer->weight));
    EXPECT_FALSE(copy->weight.is_same(layer->weight));
    fully_shard(layer, {.mesh = rank.mesh()});
    EXPECT_EQ(message_of<InvalidState>([&] { layer->clone(); }),
              "FSDP does not support deepcopy. Please use state dict for serialization.");
  });
}

TEST(Errors, DtypesOfTrainableParametersDiffer) {
  run_ranks(2, [](const Rank& rank) {
    const auto run = [&](bool freeze) {
      Linear layer(4, 4);
      layer->bias.set_data(layer->bias.to(at::kBFloat16));
      if (freeze) layer->bias.set_requires_grad(false);
      fully_shard(layer, {.mesh = rank.mesh(), .mp_policy = {.param_dtype = at::kFloat}});
      return layer(at::ones({2, 4}));
    };
    EXPECT_EQ(message_of<InvalidState>([&] { run(false); }),
              "FSDP expects uniform original parameter dtype but got {torch.bfloat16, torch.float32}");
    EXPECT_EQ(run(true).scalar_type(), at::kFloat) << "a frozen one may differ";
  });
}

TEST(Errors, MetaParametersLeft) {
  run_ranks(1, [](const Rank& rank) {
    Linear layer(4, 4);
    for (auto& parameter : layer->parameters()) {
      parameter.unsafeGetTensorImpl()->shallow_copy_from(
          at::empty({4}, at::device(at::kMeta)).getIntrusivePtr());
    }
    fully_shard(layer, {.mesh = rank.mesh()});
    EXPECT_THAT(
        message_of<RuntimeError>([&] {
          layer(at::ones({2, 4}));
        }),
        StartsWith(
            "FSDP parameters should be materialized from meta device before training, but the following were "
            "still on meta device: ['weight', 'bias']\n"));
  });
}

TEST(Errors, WhoIsRoot) {
  run_ranks(1, [](const Rank& rank) {
    Mlp model(std::vector<int64_t>{4, 4, 4});
    fully_shard(
        std::vector<std::shared_ptr<torch::nn::Module>>{model->layers[0].ptr(), model->layers[1].ptr()},
        {.mesh = rank.mesh()});
    EXPECT_THAT(message_of<RuntimeError>([&] {
                  model->layers[0](at::ones({2, 4}));
                }),
                StartsWith("FSDP requires a single root module but got ("));

    Mlp other(std::vector<int64_t>{4, 4, 4}, true);
    shard(other, {.mesh = rank.mesh()});
    other->layers[0](at::ones({2, 4}));
    EXPECT_EQ(message_of<RuntimeError>([&] {
                other(at::ones({2, 4}));
              }),
              "FSDP state has already been lazily initialized for layer0\n"
              "FSDP requires running forward through the root module first");
  });
}

TEST(Errors, PrefetchOfUnshardedModules) {
  run_ranks(1, [](const Rank& rank) {
    Linear layer(4, 4), plain(4, 4);
    auto unit = fully_shard(layer, {.mesh = rank.mesh()});
    for (const bool forward : {true, false}) {
      EXPECT_THAT(message_of<InvalidArgument>([&] {
                    forward ? unit.set_modules_to_forward_prefetch({plain.ptr()})
                            : unit.set_modules_to_backward_prefetch({plain.ptr()});
                  }),
                  StartsWith("Expects FSDPModule but got "));
    }
    EXPECT_THAT(message_of<InvalidState>([&] { FSDPModule::of(*plain); }),
                StartsWith("No FSDP state found on "));
    EXPECT_FALSE(FSDPModule::is(*plain));
  });
}

TEST(Errors, PremulSumOverGloo) {
  run_ranks(2, [](const Rank& rank) {
    Linear layer(4, 4);
    fully_shard(layer, {.mesh = rank.mesh()}).set_gradient_divide_factor(3);
    EXPECT_EQ(message_of<RuntimeError>([&] {
                layer(at::ones({2, 4})).sum().backward();
              }),
              "Cannot use ReduceOp.PREMUL_SUM with Gloo");
  });
}

}  // namespace
}  // namespace fsdp::testing
