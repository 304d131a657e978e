// What is particular to shared memory: room, waiting, and ends.
#include "fsdp/comm/shm.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "fsdp/comm/gloo.hpp"
#include "fsdp/errors.hpp"
#include "tests/ranks.hpp"

namespace fsdp::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Numbers whose sum depends on the order of addition, in bf16 and fp16 above all.
at::Tensor uneven(int64_t numel, int64_t rank, at::ScalarType dtype) {
  return (at::arange(numel).to(at::kDouble) * (rank + 1)).sin().mul(3).to(dtype);
}

struct Reduced {
  at::Tensor scattered, sum, mean, greatest;
};

Reduced reduce(Communicator& group, at::ScalarType dtype) {
  const auto n = group.size();
  // 501: in one exchange over Gloo; 20001: in two where there are more than two ranks.
  Reduced r{at::empty({999}, dtype), uneven(501, group.rank(), dtype), uneven(20'001, group.rank(), dtype),
            uneven(20'001, group.rank(), dtype)};
  group.reduce_scatter(r.scattered, uneven(999 * n, group.rank(), dtype), {ReduceOp::avg}, {})->wait();
  group.all_reduce(r.sum, {}, {})->wait();
  group.all_reduce(r.mean, {ReduceOp::avg}, {})->wait();
  group.all_reduce(r.greatest, {ReduceOp::max}, {})->wait();
  return r;
}

class ShmReductions : public ::testing::TestWithParam<int64_t> {};

TEST_P(ShmReductions, GiveTheBitsThatGlooGives) {
  run_ranks(make_shm_communicator, GetParam(), [](const Rank& rank) {
    auto rendezvous = rank.rendezvous;
    rendezvous.file_store += "-gloo";
    const auto gloo = make_gloo_communicator(rendezvous);
    for (const auto dtype : {at::kBFloat16, at::kHalf, at::kFloat}) {
      const auto a = reduce(*rank.plain, dtype), b = reduce(*gloo, dtype);
      EXPECT_TRUE(at::equal(a.scattered, b.scattered));
      EXPECT_TRUE(at::equal(a.sum, b.sum));
      EXPECT_TRUE(at::equal(a.mean, b.mean));
      EXPECT_TRUE(at::equal(a.greatest, b.greatest));
    }
  });
}
INSTANTIATE_TEST_SUITE_P(Worlds, ShmReductions, ::testing::Values(1, 2, 4));

constexpr int64_t kLarge = 5'000'000;

TEST(ShmInFlight, LargeOnesOfTwoGroupsInOppositeOrders) {
  run_ranks(make_shm_communicator, 2, [](const Rank& rank) {
    auto rendezvous = rank.rendezvous;
    rendezvous.file_store += "-other";
    const auto other = make_shm_communicator(rendezvous);
    for (int round = 0; round < 3; ++round) {
      std::vector<at::Tensor> outs;
      std::vector<WorkPtr> works;
      for (auto* group : {rank.plain.get(), other.get(), rank.plain.get(), other.get()}) {
        outs.push_back(at::empty({2 * kLarge}));
        works.push_back(group->all_gather(
            outs.back(), at::full({kLarge}, 10.0 * static_cast<double>(outs.size()) + rank.rank), {}));
      }
      for (const int i : rank.rank == 0 ? std::vector{0, 1, 2, 3} : std::vector{3, 2, 1, 0}) {
        works[i]->wait();
        const auto expected = at::full({2, kLarge}, 10.0 * (i + 1));
        expected[1].add_(1);
        EXPECT_TRUE(at::equal(outs[i].view({2, kLarge}), expected));
      }
    }
  });
}

// More than a mailbox has slots for, and of many sizes.
TEST(ShmInFlight, ThousandsBeforeTheFirstWait) {
  run_ranks(make_shm_communicator, 4, [](const Rank& rank) {
    constexpr int64_t kCount = 9000;
    std::vector<at::Tensor> sums;
    std::vector<WorkPtr> works;
    for (int64_t i = 0; i < kCount; ++i) {
      sums.push_back(at::full({1 + i % 300}, static_cast<double>(i + rank.rank)));
      works.push_back(rank.plain->all_reduce(sums.back(), {}, {}));
    }
    for (int64_t i = kCount - 1; i >= 0; --i) {
      works[i]->wait();
      EXPECT_TRUE(at::equal(sums[i], at::full({1 + i % 300}, 4.0 * static_cast<double>(i) + 6)));
    }
  });
}

TEST(ShmInFlight, ARootMayRunAheadAndWorksMayBeDropped) {
  run_ranks(make_shm_communicator, 2, [](const Rank& rank) {
    const auto tensor = at::zeros({100}), dropped = at::zeros({100});
    for (int64_t i = 0; i < 5000; ++i) {
      if (rank.rank == 0) tensor.fill_(static_cast<double>(i));
      rank.plain->broadcast(dropped, 0, {});  // nobody waits
      dropped.fill_(-1.0);
      rank.plain->broadcast(tensor, 0, {})->wait();
      EXPECT_EQ(tensor[99].item<float>(), static_cast<float>(i));
      EXPECT_EQ(dropped[99].item<float>(), -1.0F) << "written to after it was the caller's again";
    }
  });
}

TEST(ShmGroups, MayMeetAgainThroughTheSameStore) {
  run_ranks(make_shm_communicator, 2, [](const Rank& rank) {
    auto rendezvous = rank.rendezvous;
    rendezvous.file_store += "-again";
    std::vector<std::shared_ptr<Communicator>> groups;
    for (int round = 0; round < 3; ++round) {
      groups.push_back(make_shm_communicator(rendezvous));
      const auto sum = at::ones({1});
      groups.back()->all_reduce(sum, {}, {})->wait();
      EXPECT_EQ(sum.item<float>(), 2);
    }
  });
}

TEST(ShmFailures, ARankThatEndsIsNamed) {
  run_ranks(make_shm_communicator, 4, [](const Rank& rank) {
    const auto pair =
        rank.plain->subgroup(rank.rank % 2 == 0 ? std::vector<int64_t>{0, 2} : std::vector<int64_t>{1, 3});
    if (rank.rank == 3) _exit(0);  // in the midst
    if (rank.rank != 1) return;
    const auto out = at::zeros({1}), in = at::ones({2});
    auto first = pair->reduce_scatter(out, in, {}, {});
    auto second = pair->all_gather(in, out, {});
    EXPECT_THAT(message_of<RuntimeError>([&] { second->wait(); }),
                AllOf(HasSubstr("rank 3 has ended"), HasSubstr("reduce_scatter of ranks 1, 3")));
    EXPECT_THAT(message_of<RuntimeError>([&] { first->wait(); }), HasSubstr("rank 3 has ended"));
  });
}

TEST(ShmFailures, ARankThatDoesNotComeIsNamed) {
  run_ranks(make_shm_communicator, 2, [](const Rank& rank) {
    auto rendezvous = rank.rendezvous;
    rendezvous.file_store += "-hasty";
    rendezvous.timeout = std::chrono::seconds(2);
    const auto hasty = make_shm_communicator(rendezvous);
    if (rank.rank == 0) {
      EXPECT_THAT(
          message_of<RuntimeError>([&] { hasty->all_reduce(at::ones({1}), {}, {})->wait(); }),
          HasSubstr(
              "timed out after 2000 ms waiting for rank 1 in all_reduce of ranks 0, 1, seen by rank 0"));
    }
    rank.plain->all_reduce(at::ones({1}), {}, {})->wait();  // rank 1 lives until then
  });
}

TEST(ShmFailures, PremultipliedSumsAreRefusedAsOverGloo) {
  run_ranks(make_shm_communicator, 2, [](const Rank& rank) {
    EXPECT_THAT(message_of<RuntimeError>([&] {
                  rank.plain->all_reduce(at::ones({1}), {ReduceOp::premul_sum, 0.5}, {});
                }),
                HasSubstr("Cannot use ReduceOp.PREMUL_SUM"));
  });
}

TEST(ShmMemory, NothingIsLeft) {
  run_ranks(make_shm_communicator, 2, [](const Rank& rank) {
    auto rendezvous = rank.rendezvous;
    rendezvous.file_store += "-other";
    const auto mappings = [](const char* of = "memfd:fsdp") {
      std::ifstream maps("/proc/self/maps");
      int count = 0;
      for (std::string line; std::getline(maps, line);) count += line.find(of) != std::string::npos ? 1 : 0;
      return count;
    };
    EXPECT_EQ(mappings("/dev/shm/"), 0);  // where it would have a name
    EXPECT_EQ(mappings(), 2);
    {
      const auto other = make_shm_communicator(rendezvous);
      other->all_reduce(at::ones({1000}), {}, {})->wait();
      EXPECT_EQ(mappings(), 4);
    }
    EXPECT_EQ(mappings(), 2);
    for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;  // that of the iteration itself
      EXPECT_THAT(std::filesystem::read_symlink(file, gone).string(),
                  ::testing::Not(HasSubstr("memfd:fsdp")));
    }
  });
}

/// Lets this process map `bytes` more than it has now.
void limit_address_space(int64_t bytes) {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  statm >> pages;
  const auto limit = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + bytes);
  const rlimit limits{limit, limit};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limits), 0);
}

constexpr int64_t kMiB = int64_t{1} << 20;

// One rank alone is short of it; the others take no more than it can map.
TEST(ShmAddressSpace, ASmallerOneIsMadeDoWith) {
  run_ranks(make_shm_communicator, 2, [](const Rank& rank) {
    auto rendezvous = rank.rendezvous;
    rendezvous.file_store += "-short";
    if (rank.rank == 1) limit_address_space(1500 * kMiB);
    const auto group = make_shm_communicator(rendezvous);
    const auto sum = at::ones({kLarge});
    group->all_reduce(sum, {}, {})->wait();
    EXPECT_EQ(sum[kLarge - 1].item<float>(), 2);
    const auto large = at::empty({300 * kMiB}, at::kByte);
    EXPECT_THAT(message_of<RuntimeError>([&] { group->broadcast(large, rank.rank, {}); }),
                AllOf(HasSubstr("no room for broadcast of 314572800 bytes"), HasSubstr("256 MiB"),
                      HasSubstr("ulimit -v")));
    rank.plain->all_reduce(at::ones({1}), {}, {})->wait();
  });
}

TEST(ShmAddressSpace, TooLittleIsAnErrorThatSaysWhatToDo) {
  run_ranks(make_shm_communicator, 2, [](const Rank& rank) {
    auto rendezvous = rank.rendezvous;
    rendezvous.file_store += "-short";
    limit_address_space(300 * kMiB);
    EXPECT_THAT(message_of<RuntimeError>([&] { make_shm_communicator(rendezvous); }),
                AllOf(HasSubstr("2 x 256 MiB of address space"), HasSubstr("ulimit -v"), HasSubstr("Gloo")));
  });
}

}  // namespace
}  // namespace fsdp::testing
