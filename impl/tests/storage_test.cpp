// Memory of unsharded parameters: what is kept for the next gather, and that it never adds to a step's peak.
#include "base/storage.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/models.hpp"
#include "tests/ranks.hpp"

namespace fsdp::testing {
namespace {

constexpr int64_t kNumel = 100'000;
constexpr size_t kBytes = kNumel * sizeof(float);

TEST(UnshardedMemory, IsKeptForTheNextOfItsSize) {
  run_ranks(1, [](const Rank&) {
    const auto tensor = empty_unsharded(kNumel, at::TensorOptions());
    const auto* address = tensor.const_data_ptr();
    EXPECT_EQ(unsharded_memory().used, kBytes);
    free_storage(tensor);
    EXPECT_EQ(unsharded_memory().used, 0U);
    EXPECT_EQ(unsharded_memory().kept, kBytes);
    alloc_storage(tensor);
    EXPECT_EQ(tensor.const_data_ptr(), address);
    EXPECT_EQ(unsharded_memory().used, kBytes);
    EXPECT_EQ(unsharded_memory().kept, 0U);
  });
}

TEST(UnshardedMemory, IsNeverMoreThanWasOnceUsed) {
  run_ranks(1, [](const Rank&) {
    auto a = empty_unsharded(kNumel, at::TensorOptions()), b = empty_unsharded(kNumel, at::TensorOptions());
    free_storage(a);
    free_storage(b);
    EXPECT_EQ(unsharded_memory().kept, 2 * kBytes);
    // Another size: one of the two has to go, and both have to for something larger than either.
    const auto other = empty_unsharded(kNumel / 2, at::TensorOptions());
    EXPECT_EQ(unsharded_memory().kept, kBytes);
    const auto large = empty_unsharded(2 * kNumel, at::TensorOptions());
    EXPECT_EQ(unsharded_memory().kept, 0U);
    EXPECT_EQ(unsharded_memory().used, 5 * kBytes / 2);
    b = a = at::Tensor();
    release_kept_memory();
    EXPECT_EQ(unsharded_memory().kept, 0U);
  });
}

TEST(UnshardedMemory, GoesWithTheLastModel) {
  run_ranks(2, [](const Rank& rank) {
    {
      Mlp model(std::vector<int64_t>{260, 515, 4});
      initialize(*model);
      shard(model, {.mesh = rank.mesh()});
      model(values({4, 260}, 0)).sum().backward();
      EXPECT_EQ(unsharded_memory().used, 0U);
      EXPECT_GT(unsharded_memory().kept, 0U);
    }
    EXPECT_EQ(unsharded_memory().kept, 0U);
  });
}

}  // namespace
}  // namespace fsdp::testing
