#include "reference/perturbation.hpp"

#include <gtest/gtest.h>

#include "reference/tests/simulated.hpp"

namespace fsdp_cts::reference {
namespace {

constexpr double unit = 0x1p-23;  // of fp32

at::Tensor numbers(std::int64_t count) {
  return at::arange(1, count + 1, at::kFloat).div(7).sub(3);
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  return at::equal(a, b);
}

double largest(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

TEST(Perturbation, MovesEveryComputedElementByOneUnitInTheLastPlace) {
  const at::Tensor x = numbers(64), y = numbers(64).flip(0);
  const at::Tensor product = x * y, root = x.abs().sqrt();
  at::Tensor moved_product, moved_root;
  {
    const Perturbation perturbation(1);
    moved_product = x * y;
    moved_root = x.abs().sqrt();
  }
  for (const auto& [plain, moved] : {std::pair(product, moved_product), std::pair(root, moved_root)}) {
    const at::Tensor distance = (plain - moved).abs();
    EXPECT_EQ(distance.gt(0).sum().item<int>(), plain.ne(0).sum().item<int>());
    EXPECT_TRUE(distance.le(plain.abs() * unit).all().item<bool>());
    const int up = moved.abs().gt(plain.abs()).sum().item<int>();
    EXPECT_GT(up, 16);
    EXPECT_LT(up, 48);
  }
  EXPECT_TRUE(same(x * y, product));  // over with its life
}

TEST(Perturbation, IsTheSameEachTimeAndAnotherForAnotherPattern) {
  const at::Tensor x = numbers(64);
  const auto run = [&](std::uint64_t pattern) {
    Perturbation perturbation(pattern);
    perturbation.begin(3);
    return x * x;
  };
  EXPECT_TRUE(same(run(1), run(1)));
  EXPECT_FALSE(same(run(1), run(2)));
}

TEST(Perturbation, LeavesWhatIsNotComputed) {
  const at::Tensor x = numbers(64).reshape({8, 8});
  const at::Tensor low = x.to(at::kBFloat16), widened = low.to(at::kFloat),
                   whole = at::arange(64).reshape({8, 8});
  const Perturbation perturbation(1);
  EXPECT_TRUE(same(x.t().contiguous().t(), x));
  EXPECT_TRUE(same(at::cat({x, x}).narrow(0, 8, 8), x));
  EXPECT_TRUE(same(x.clone().view({64}).reshape({8, 8}).detach(), x));
  EXPECT_TRUE(same(at::empty_like(x).copy_(x), x));
  EXPECT_TRUE(same(low.to(at::kFloat), widened));
  EXPECT_FALSE(same(x.to(at::kBFloat16), low));  // a narrower dtype is a rounding
  EXPECT_TRUE(same(at::relu(x), at::relu(x)));
  EXPECT_TRUE(same(-(-x), x));
  EXPECT_TRUE(same(at::where(x.gt(0), x, x), x));
  EXPECT_TRUE(same(whole + whole, whole * 2));
  EXPECT_EQ((x - x).count_nonzero().item<int>(), 0);
  EXPECT_TRUE(at::isinf(at::full({1}, 3e38f) * 10).all().item<bool>());
  EXPECT_TRUE(at::isfinite(at::full({64}, 3.4028234e38f) * 1).all().item<bool>());
}

TEST(Perturbation, MovesHereAndThereInLowPrecision) {
  const at::Tensor x = at::ones({1024}, at::kBFloat16), three = at::full({1024}, 3, at::kBFloat16);
  const at::Tensor plain = x / three;
  at::Tensor moved;
  {
    const Perturbation perturbation(1);
    moved = x / three;
  }
  const int count = plain.ne(moved).sum().item<int>();
  EXPECT_GT(count, 32);
  EXPECT_LT(count, 128);
  EXPECT_LE(largest(plain, moved), 0x1p-9);
}

TEST(Perturbation, ReachesStridedResultsWithoutTouchingTheirNeighbours) {
  at::Tensor wide = at::ones({4, 6});
  {
    const Perturbation perturbation(1);
    wide.narrow(1, 2, 2).mul_(3);
  }
  EXPECT_TRUE(same(wide.narrow(1, 0, 2), at::ones({4, 2})));
  EXPECT_TRUE(same(wide.narrow(1, 4, 2), at::ones({4, 2})));
  EXPECT_EQ(wide.narrow(1, 2, 2).ne(3).sum().item<int>(), 8);
}

TEST(Perturbation, TrainingStaysNearAndAutogradDoesNotMind) {
  CaseInMemory c(2);
  c.model(sdk::linear(4, 3)).parameter("weight", numbers(12).reshape({3, 4})).parameter("bias", numbers(3));
  for (int rank = 0; rank < 2; ++rank)
    c.input("x@" + std::to_string(rank), numbers(8).reshape({2, 4}).add(rank));
  c.plan({{"api", "fully_shard"}, {"units", Json::array({{{"modules", {""}}}})}});
  c.steps({step("build"), step("shard"), step("optimizer", {{"kind", "Adam"}, {"lr", 0.01}})});
  for (int i = 0; i < 2; ++i)
    c.steps({forward(), step("loss", {{"kind", "sum"}}), step("backward"), step("step"), step("zero_grad")});
  c.steps({observe({"parameters"})});
  const Simulated native(c), perturbed(c, "rank", "perturbed:1"), again(c, "rank", "perturbed:1"),
      other(c, "rank", "perturbed:2");
  EXPECT_TRUE(perturbed.entry("parameters")["rank"].is_null());  // every rank's copy took the same steps
  for (const char* name : {"weight", "bias"}) {
    const at::Tensor plain = native.tensor("parameters", name), moved = perturbed.tensor("parameters", name);
    EXPECT_LT(largest(plain, moved), 64 * unit * plain.abs().max().item<double>()) << name;
    EXPECT_TRUE(same(moved, again.tensor("parameters", name))) << name;
  }
  const at::Tensor weight = perturbed.tensor("parameters", "weight");
  EXPECT_FALSE(same(weight, native.tensor("parameters", "weight")));
  EXPECT_FALSE(same(weight, other.tensor("parameters", "weight")));
}

}  // namespace
}  // namespace fsdp_cts::reference
