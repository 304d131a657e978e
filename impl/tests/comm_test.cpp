// Collectives against closed forms of rank and size, and what the recorder notes of them.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/local_reduction.hpp"
#include "fsdp/comm/gloo.hpp"
#include "fsdp/comm/shm.hpp"
#include "fsdp/errors.hpp"
#include "tests/ranks.hpp"

namespace fsdp::testing {
namespace {

struct Backend {
  const char* name;
  MakeCommunicator* make;
};
void PrintTo(const Backend& backend, std::ostream* stream) {
  *stream << backend.name;
}
const auto kBackends =
    ::testing::Values(Backend{"gloo", make_gloo_communicator}, Backend{"shm", make_shm_communicator});

class OverEachBackend : public ::testing::TestWithParam<Backend> {
 protected:
  static void run(int64_t world, const std::function<void(const Rank&)>& body) {
    run_ranks(GetParam().make, world, body);
  }
};
using CollectivesInFlight = OverEachBackend;
using Subgroups = OverEachBackend;
using Failures = OverEachBackend;
std::string backend_name(const ::testing::TestParamInfo<Backend>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Over, CollectivesInFlight, kBackends, backend_name);
INSTANTIATE_TEST_SUITE_P(Over, Subgroups, kBackends, backend_name);
INSTANTIATE_TEST_SUITE_P(Over, Failures, kBackends, backend_name);

class Collectives : public ::testing::TestWithParam<std::tuple<Backend, int64_t>> {
 protected:
  static void run(const std::function<void(const Rank&)>& body) {
    run_ranks(std::get<0>(GetParam()).make, std::get<1>(GetParam()), body);
  }
};

TEST_P(Collectives, ClosedForms) {
  run([](const Rank& rank) {
    auto& group = *rank.recorded;
    const auto n = rank.world;
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong}) {
      // Rank r contributes r + i at element i.
      const auto own = (at::arange(3) + rank.rank).to(dtype);
      const auto gathered = at::zeros({3 * n}, dtype);
      group.all_gather(gathered, own, {})->wait();
      for (int64_t r = 0; r < n; ++r)
        EXPECT_TRUE(at::equal(gathered.narrow(0, 3 * r, 3), (at::arange(3) + r).to(dtype)));

      const auto in_place = at::zeros({3 * n}, dtype);
      in_place.narrow(0, 3 * rank.rank, 3).copy_(own);
      group.all_gather(in_place, in_place.narrow(0, 3 * rank.rank, 3), {})->wait();
      EXPECT_TRUE(at::equal(in_place, gathered));

      const auto scattered = at::zeros({2}, dtype);
      group.reduce_scatter(scattered, (at::arange(2 * n) + rank.rank).to(dtype), {}, {})->wait();
      const auto expected = n * (at::arange(2) + 2 * rank.rank) + n * (n - 1) / 2;
      EXPECT_TRUE(at::equal(scattered, expected.to(dtype)));

      const auto reduced = (at::arange(5) + rank.rank).to(dtype);
      group.all_reduce(reduced, {}, {})->wait();
      EXPECT_TRUE(at::equal(reduced, (n * at::arange(5) + n * (n - 1) / 2).to(dtype)));
      const auto greatest = (at::arange(5) + rank.rank).to(dtype);
      group.all_reduce(greatest, {ReduceOp::max}, {})->wait();
      EXPECT_TRUE(at::equal(greatest, (at::arange(5) + n - 1).to(dtype)));

      const auto sent = (at::arange(4) + 10 * rank.rank).to(dtype);
      group.broadcast(sent, n - 1, {})->wait();
      EXPECT_TRUE(at::equal(sent, (at::arange(4) + 10 * (n - 1)).to(dtype)));
    }
    const auto mean = at::full({1}, static_cast<double>(rank.rank));
    group.all_reduce(mean, {ReduceOp::avg}, {})->wait();
    EXPECT_EQ(mean.item<float>(), static_cast<float>(n - 1) / 2);
    const auto nothing = at::empty({0});
    group.all_gather(nothing, nothing, {})->wait();
  });
}

TEST_P(Collectives, OverSeveralTensors) {
  run([](const Rank& rank) {
    auto& group = *rank.recorded->partwise();
    const auto n = rank.world;
    const auto first = at::zeros({2 * n}), second = at::zeros({n});
    group
        .all_gather({{first, at::full({2}, rank.rank + 1.0)}, {second, at::full({1}, rank.rank + 10.0)}}, {})
        ->wait();
    EXPECT_TRUE(at::equal(first, (at::arange(2 * n) / 2).floor() + 1.0));
    EXPECT_TRUE(at::equal(second, at::arange(n) + 10.0));

    // Blocks of 2, of which the last holds 1; and blocks of 3, of which only the first is there.
    const auto evens = at::full({2}, -1.0), shorter = at::full({3}, -1.0);
    group
        .reduce_scatter({{at::ones({2 * n - 1}), evens}, {at::arange(3).to(at::kFloat) + rank.rank, shorter}},
                        {}, {"unit", true, Phase::backward})
        ->wait();
    const auto sum = static_cast<float>(n), shift = sum * (sum - 1) / 2;
    EXPECT_TRUE(at::equal(evens, at::tensor({sum, rank.rank == n - 1 ? 0.0F : sum})));
    const auto expected = rank.rank == 0 ? at::arange(3) * sum + shift : at::zeros({3});
    EXPECT_TRUE(at::equal(shorter, expected));

    const auto events = rank.trace->take();
    ASSERT_EQ(events.size(), 2U);
    EXPECT_EQ(events[0].in_numel, 3);
    EXPECT_EQ(events[0].out_numel, 3 * n);
    EXPECT_EQ(events[1].kind, CollectiveKind::reduce_scatter);
    EXPECT_EQ(events[1].in_numel, 5 * n);
    EXPECT_EQ(events[1].out_numel, 5);
    EXPECT_EQ(events[1].site.unit, "unit");
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Collectives, ::testing::Combine(kBackends, ::testing::Values(1, 2, 4)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + std::to_string(std::get<1>(test.param));
                         });

TEST_P(CollectivesInFlight, ManyAtOnceInAnyOrderOfWaiting) {
  run(2, [](const Rank& rank) {
    std::vector<WorkPtr> works;
    std::vector<at::Tensor> outputs;
    for (int i = 0; i < 20; ++i) {
      outputs.push_back(at::zeros({2 * 1000}));
      works.push_back(rank.plain->all_gather(
          outputs.back(), at::full({1000}, 100.0 * i + static_cast<double>(rank.rank)), {}));
    }
    for (int i = 19; i >= 0; --i) {
      works[i]->wait();
      EXPECT_EQ(outputs[i][0].item<float>(), 100.0F * static_cast<float>(i));
      EXPECT_EQ(outputs[i][1000].item<float>(), 100.0F * static_cast<float>(i) + 1);
    }
    rank.plain->all_reduce(at::ones({1}), {}, {});  // nobody waits
  });
}

TEST(LocalReduction, AddsInRankOrderAndRoundsEachTime) {
  // 256 + 1 is 256 in bf16, so only the order (1 + 1) + 256 sees the small ones.
  const auto out = at::empty({1}, at::kBFloat16);
  const auto one = at::ones({1}, at::kBFloat16), big = at::full({1}, 256, at::kBFloat16);
  reduce_in_rank_order(out, {big, one, one}, {});
  EXPECT_EQ(out.item<float>(), 256);
  reduce_in_rank_order(out, {one, one, big}, {});
  EXPECT_EQ(out.item<float>(), 258);
}

TEST_P(Subgroups, AreMadeOnceAndKeepTheirOrder) {
  run(4, [](const Rank& rank) {
    const std::vector<int64_t> members =
        rank.rank % 2 == 0 ? std::vector<int64_t>{0, 2} : std::vector<int64_t>{1, 3};
    const auto group = rank.recorded->subgroup(members);
    EXPECT_EQ(group, rank.recorded->subgroup(members));
    EXPECT_EQ(group->rank(), rank.rank / 2);
    const auto sum = at::full({1}, static_cast<double>(rank.rank));
    group->all_reduce(sum, {}, {"unit", true, Phase::backward})->wait();
    EXPECT_EQ(sum.item<float>(), rank.rank % 2 == 0 ? 2 : 4);
    const auto events = rank.trace->take();
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events[0].kind, CollectiveKind::all_reduce);
    EXPECT_EQ(events[0].ranks, members);
    EXPECT_EQ(events[0].site.unit, "unit");
    EXPECT_EQ(events[0].site.phase, Phase::backward);
    EXPECT_EQ(events[0].dtype, at::kFloat);
    EXPECT_TRUE(rank.trace->take().empty());
  });
}

TEST_P(Subgroups, OnlyMembersMakeThem) {
  run(2, [](const Rank& rank) {
    EXPECT_THAT(message_of<InvalidArgument>([&] { rank.plain->subgroup({1 - rank.rank}); }),
                ::testing::HasSubstr("only be made by its members"));
  });
}

TEST_P(Failures, APeerThatDiesIsReportedAtOnce) {
  run(2, [](const Rank& rank) {
    if (rank.rank == 1) return;
    const auto out = at::empty({2});
    EXPECT_THROW(rank.plain->all_gather(out, at::ones({1}), {})->wait(), std::exception);
  });
}

}  // namespace
}  // namespace fsdp::testing
