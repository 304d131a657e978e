// Which rank holds what, and that gathering puts it together again.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "per_parameter/state.hpp"
#include "tests/models.hpp"
#include "tests/ranks.hpp"

namespace fsdp::testing {
namespace {

TEST(ShardLayoutTest, PiecesAreCeilingChunks) {
  for (int64_t size = 0; size < 20; ++size) {
    for (int64_t ranks = 1; ranks < 9; ++ranks) {
      int64_t covered = 0;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const auto rows = chunk_rows(size, ranks, rank);
        EXPECT_EQ(rows.begin, covered);
        EXPECT_EQ(rows.end, std::min(size, (rank + 1) * ((size + ranks - 1) / ranks)));
        covered = rows.end;
      }
      EXPECT_EQ(covered, size);
    }
  }
}

TEST(ShardLayoutTest, PiecesInTheGlobalTensor) {
  const ShardLayout rows{{5, 3}, 0, 2, 2, 2};
  EXPECT_EQ(rows.pieces().size(), 1U);
  EXPECT_EQ(rows.pieces()[0].offset, 6);
  EXPECT_EQ(rows.pieces()[0].length, 6);
  EXPECT_EQ(rows.padding(), 0);
  const ShardLayout columns{{2, 4, 3}, 1, 2, 2, 2};
  ASSERT_EQ(columns.pieces().size(), 2U);
  EXPECT_EQ(columns.pieces()[1].offset, 12 + 6);
  EXPECT_EQ(columns.pieces()[1].length, 6);
  const ShardLayout nothing{{5, 3}, 0, 5, 0, 2};
  EXPECT_TRUE(nothing.pieces().empty());
  EXPECT_EQ(nothing.padding(), 6);
}

struct OddImpl : torch::nn::Module {
  OddImpl() {
    for (const auto& shape : std::vector<std::vector<int64_t>>{{5, 3}, {1}, {3, 2}, {4, 2, 2}, {8}}) {
      tensors.push_back(register_parameter("p" + std::to_string(tensors.size()), at::zeros(shape)));
    }
  }
  at::Tensor forward(const at::Tensor& input) {
    auto sum = input;
    for (const auto& tensor : tensors) sum = sum + (tensor * tensor).sum();
    return sum;
  }
  std::vector<at::Tensor> tensors;
};
FSDP_HOOKED_MODULE(Odd, OddImpl);

class Sharding : public ::testing::TestWithParam<int64_t> {};

TEST_P(Sharding, UnevenShortAndEmptyShards) {
  run_ranks(GetParam(), [](const Rank& rank) {
    Odd module;
    initialize(*module);
    std::vector<at::Tensor> whole;
    for (const auto& tensor : module->tensors) whole.push_back(tensor.detach().clone());
    auto unit = fully_shard(module, {.mesh = rank.mesh()});
    const auto parameters = unit.parameters();
    for (size_t i = 0; i < whole.size(); ++i) {
      const auto& layout = *parameters[i].layout;
      const auto chunk = (whole[i].size(0) + rank.world - 1) / rank.world;
      EXPECT_EQ(layout.start, std::min(rank.rank * chunk, whole[i].size(0)));
      EXPECT_TRUE(
          at::equal(parameters[i].parameter.detach(), whole[i].narrow(0, layout.start, layout.length)));
      EXPECT_TRUE(at::equal(full_values(*module)[i], whole[i]));
      // Padding is zero from the start and stays so: it takes part in the all-gather.
      const auto& piece = unit.state()->group()->params()[i]->piece();
      EXPECT_EQ(piece.numel() - parameters[i].parameter.numel(), layout.padding());
      if (layout.padding() > 0) {
        EXPECT_EQ(
            piece.narrow(0, piece.numel() - layout.padding(), layout.padding()).abs().sum().item<float>(), 0);
      }
    }
    module(at::zeros({1})).sum().backward();
    for (size_t i = 0; i < whole.size(); ++i) {
      const auto gradient = full_values(*module, true)[i];
      EXPECT_TRUE(at::equal(gradient, 2 * whole[i])) << i;
    }
  });
}

TEST_P(Sharding, OnOtherDimensions) {
  run_ranks(GetParam(), [](const Rank& rank) {
    for (const int64_t ranks : {rank.world, std::max<int64_t>(rank.world / 2, 1)}) {
      Linear layer(8, 5), reference(8, 5);
      initialize(*layer);
      initialize(*reference);
      const auto placement = [](const at::Tensor& parameter) {
        return parameter.dim() == 2 ? std::optional<int64_t>(1) : std::nullopt;
      };
      fully_shard(layer,
                  {.mesh = rank.mesh(), .reshard_after_forward = ranks, .shard_placement_fn = placement});
      EXPECT_EQ(layer->weight.size(1), 8 / rank.world);
      EXPECT_TRUE(layer->weight.is_contiguous());
      const auto input = values({3, 8}, 7);
      auto output = layer(input), expected = reference(input);
      EXPECT_TRUE(at::equal(output, expected));
      (output * output).sum().backward();
      (expected * expected).sum().backward();
      expect_equal(*layer, *reference, true);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Sharding, ::testing::Values(1, 2, 4));

TEST(ShardingOfGroups, ChildrenFirstAndTheRestToTheRoot) {
  run_ranks(2, [](const Rank& rank) {
    Mlp model(std::vector<int64_t>{4, 4, 4}, true);
    fully_shard(model->layers[0], {.mesh = rank.mesh()});
    fully_shard(model, {.mesh = rank.mesh()});
    const auto units = named_units(*model);
    ASSERT_EQ(units.size(), 2U);
    EXPECT_EQ(units[0].first, "");
    std::vector<std::string> names;
    for (const auto& parameter : units[0].second.parameters()) names.push_back(parameter.name);
    EXPECT_EQ(names, (std::vector<std::string>{"layer1.weight", "layer1.bias", "scale"}))
        << "children before their parent";
    EXPECT_EQ(units[1].second.parameters().size(), 2U);
  });
}

TEST(ShardingOfGroups, IgnoredParametersStayWhole) {
  run_ranks(2, [](const Rank& rank) {
    Mlp model(std::vector<int64_t>{4, 4, 4});
    initialize(*model);
    const auto ignored = model->layers[1]->parameters();
    fully_shard(model, {.mesh = rank.mesh(), .ignored_params = ignored});
    EXPECT_EQ(model->layers[0]->weight.size(0), 2);
    EXPECT_EQ(model->layers[1]->weight.size(0), 4);
    model(values({2, 4}, rank.rank)).sum().backward();
    const auto parameters = named_parameters(*model);
    EXPECT_FALSE(parameters[2].layout.has_value());
    EXPECT_EQ(parameters[2].gradient.size(0), 4) << "a gradient of its own, reduced by nobody";
    for (const auto& event : rank.trace->take())
      EXPECT_EQ(event.out_numel * (event.kind == CollectiveKind::all_gather ? 1 : 2), 20);
  });
}

TEST(ShardingOfGroups, ModulesGatheredTogether) {
  run_ranks(2, [](const Rank& rank) {
    Mlp model(std::vector<int64_t>{4, 4, 4}, true), reference(std::vector<int64_t>{4, 4, 4}, true);
    initialize(*model);
    initialize(*reference);
    fully_shard(
        std::vector<std::shared_ptr<torch::nn::Module>>{model->layers[0].ptr(), model->layers[1].ptr()},
        {.mesh = rank.mesh()});
    fully_shard(model, {.mesh = rank.mesh()});
    const auto input = [](int64_t r) { return values({2, 4}, r); };
    model(input(rank.rank)).sum().backward();
    average_gradients(reference, 2, [&](int64_t r) { return reference(input(r)).sum(); });
    expect_equal(*model, *reference, true);
    const auto events = rank.trace->take();
    EXPECT_EQ(std::count_if(events.begin(), events.end(),
                            [](const auto& e) { return e.site.unit == "layer0, layer1"; }),
              3);
  });
}

}  // namespace
}  // namespace fsdp::testing
