#include "reference/reduction.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "reference/flat_layout.hpp"

namespace fsdp_cts::reference {
namespace {

// 1, and two halves of its last bit: adding the halves first keeps them, adding them one by one loses both
// (ties go to even).
constexpr float kHalfUlp = 0x1p-24f;

TEST(Reduction, RankOrderAddsFromTheFirstRankOn) {
  const std::vector<at::Tensor> buffers{at::ones({6}), at::full({6}, kHalfUlp), at::full({6}, kHalfUlp)};
  EXPECT_TRUE(at::equal(sum_over_ranks(buffers, Order::rank), at::ones({6})));
}

TEST(Reduction, RingOrderDependsOnTheChunk) {
  // 6 elements, 3 ranks: chunks of 2. Chunk c adds x[c] + (x[c+1] + x[c+2]): only chunk 0 adds the halves
  // first.
  const std::vector<at::Tensor> buffers{at::ones({6}), at::full({6}, kHalfUlp), at::full({6}, kHalfUlp)};
  const float kept = 1 + 2 * kHalfUlp;
  EXPECT_TRUE(at::equal(sum_over_ranks(buffers, Order::ring), at::tensor({kept, kept, 1.f, 1.f, 1.f, 1.f})));
}

TEST(Reduction, RingChunksOfGloosSegments) {
  EXPECT_EQ(ring_chunk_numel(6, 4, 3), 2);
  EXPECT_EQ(ring_chunk_numel(7, 4, 3), 4);  // 28 bytes in 6 segments of 8 bytes, two segments a chunk
  EXPECT_EQ(ring_chunk_numel(1, 4, 4), 2);  // the others are empty
  EXPECT_EQ(ring_chunk_numel(std::int64_t{1} << 23, 4, 4), std::int64_t{1} << 21);  // 32 segments of 1 MiB
}

TEST(Reduction, EveryAdditionRoundsInTheBuffersDtype) {
  const std::vector<at::Tensor> buffers(3, at::full({1}, 257.f).to(at::kBFloat16));  // 257 is 256 in bf16
  EXPECT_EQ(sum_over_ranks(buffers, Order::rank).item<float>(), 768);
}

TEST(Reduction, PredivideFactors) {
  for (const auto& [divisor, factor] : std::vector<std::pair<double, double>>{
           {1, 1}, {2, 2}, {3, 2}, {4, 2}, {6, 4}, {8, 4}, {16, 4}, {32, 8}}) {
    EXPECT_EQ(predivide_factor(divisor), factor) << divisor;
  }
}

TEST(FlatLayout, TheWritebackModelOverTwoRanks) {
  // Numels of lin1.weight, lin1.bias, lin2.weight, lin2.bias.
  const FlatLayout exposed({25, 5, 35, 7}, 4, 2, true);
  EXPECT_EQ(exposed.total(), 80);
  EXPECT_EQ(exposed.numel_in_shard(0, 0), 25);
  EXPECT_EQ(exposed.numel_in_shard(2, 0), 4);
  EXPECT_EQ(exposed.numel_in_shard(2, 1), 31);
  EXPECT_EQ(exposed.numel_in_shard(3, 0), 0);
  EXPECT_EQ(FlatLayout({25, 5, 35, 7}, 4, 2, false).total(), 72);
  const FlatLayout half({25, 5}, 8, 2, true);  // fp16 compute: members start at multiples of 8
  EXPECT_EQ(half.total(), 38);
  EXPECT_EQ(half.numel_in_shard(0, 0), 19);
  EXPECT_EQ(half.numel_in_shard(1, 1), 5);
}

}  // namespace
}  // namespace fsdp_cts::reference
