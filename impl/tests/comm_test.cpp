// Collectives against closed forms of rank and size, and what the recorder notes of them.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

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
using Meetings = OverEachBackend;
std::string backend_name(const ::testing::TestParamInfo<Backend>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Over, CollectivesInFlight, kBackends, backend_name);
INSTANTIATE_TEST_SUITE_P(Over, Subgroups, kBackends, backend_name);
INSTANTIATE_TEST_SUITE_P(Over, Failures, kBackends, backend_name);
INSTANTIATE_TEST_SUITE_P(Over, Meetings, kBackends, backend_name);

/// Another meeting of the same ranks, which gives up soon.
std::shared_ptr<Communicator> meet_again(const Rank& rank, MakeCommunicator* make, const std::string& name) {
  auto rendezvous = rank.rendezvous;
  rendezvous.file_store += "-" + name;
  rendezvous.timeout = std::chrono::seconds(5);
  return make(rendezvous);
}
void barrier(const Rank& rank) {
  rank.plain->all_reduce(at::zeros({1}), {}, {})->wait();
}

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

constexpr int64_t kLarge = 30'000;  // an all-reduce of so many takes two exchanges over Gloo

TEST_P(CollectivesInFlight, AWorkKeepsItsGroupAlive) {
  run(4, [](const Rank& rank) {
    auto group = meet_again(rank, GetParam().make, "own");
    const auto own = static_cast<double>(rank.rank);
    const auto gathered = at::zeros({4}), scattered = at::zeros({1}), sent = at::full({3}, own);
    const auto small = at::full({5}, own), large = at::full({kLarge}, own);
    std::vector<WorkPtr> works;
    works.push_back(group->all_gather(gathered, at::full({1}, own), {}));
    works.push_back(group->reduce_scatter(scattered, at::full({4}, own), {}, {}));
    works.push_back(group->all_reduce(small, {}, {}));
    works.push_back(group->all_reduce(large, {}, {}));
    works.push_back(group->broadcast(sent, 2, {}));
    const std::weak_ptr<Communicator> observer = group;
    group.reset();
    EXPECT_FALSE(observer.expired());
    for (const auto& work : works) work->wait();
    EXPECT_TRUE(at::equal(gathered, at::arange(4).to(at::kFloat)));
    EXPECT_EQ(scattered.item<float>(), 6);
    EXPECT_TRUE(at::equal(small, at::full({5}, 6.0)));
    EXPECT_TRUE(at::equal(large, at::full({kLarge}, 6.0)));
    EXPECT_TRUE(at::equal(sent, at::full({3}, 2.0)));
    barrier(rank);
    works.clear();
    EXPECT_TRUE(observer.expired());
  });
}

TEST_P(CollectivesInFlight, AllReducesMayBeWaitedForInOppositeOrders) {
  for (const int64_t numel : {int64_t{5}, kLarge}) {
    run(3, [numel](const Rank& rank) {
      const auto one = meet_again(rank, GetParam().make, "one"),
                 other = meet_again(rank, GetParam().make, "other");
      std::vector<at::Tensor> sums;
      std::vector<WorkPtr> works;
      for (const auto& group : {one, one, other}) {
        sums.push_back(at::full({numel}, static_cast<double>(rank.rank) + 10.0 * sums.size()));
        works.push_back(group->all_reduce(sums.back(), {}, {}));
      }
      for (const int i : rank.rank == 0 ? std::vector{0, 1, 2} : std::vector{2, 1, 0}) {
        works[i]->wait();
        EXPECT_TRUE(at::equal(sums[i], at::full({numel}, 3.0 + 30.0 * i)));
      }
      barrier(rank);
    });
  }
}

TEST_P(CollectivesInFlight, ADroppedAllReduceDoesNotStallTheOthers) {
  run(3, [](const Rank& rank) {
    const auto group = meet_again(rank, GetParam().make, "own");
    const auto sum = at::ones({kLarge});
    auto work = group->all_reduce(sum, {}, {});
    if (rank.rank == 2) {
      work.reset();
    } else {
      work->wait();
      EXPECT_TRUE(at::equal(sum, at::full({kLarge}, 3.0)));
    }
    barrier(rank);
  });
}

TEST_P(CollectivesInFlight, AreWaitedForByOneThreadWhileAnotherIssues) {
  run(2, [](const Rank& rank) {
    constexpr int kCount = 1000;
    std::vector<at::Tensor> sums;
    for (int i = 0; i < kCount; ++i) sums.push_back(at::full({3}, static_cast<double>(i)));
    std::vector<WorkPtr> works(kCount);
    std::atomic<int> issued = 0;
    std::thread waiter([&] {
      for (int i = 0; i < kCount; ++i) {
        while (issued <= i) std::this_thread::yield();
        works[i]->wait();
      }
    });
    for (int i = 0; i < kCount; ++i, ++issued) works[i] = rank.plain->all_reduce(sums[i], {}, {});
    waiter.join();
    for (int i = 0; i < kCount; ++i) EXPECT_EQ(sums[i][2].item<float>(), 2.0F * static_cast<float>(i));
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

// Over shared memory a rank's part lies there for the others whatever becomes of it.
TEST(GlooFailures, APeerThatDiesIsReportedToThoseWhoComeLate) {
  run_ranks(make_gloo_communicator, 3, [](const Rank& rank) {
    // Rank 2 goes, rank 0 sees it, and only then rank 1 issues what it has to receive from both. Rank 0 lives on
    // meanwhile, or its end would be what saves rank 1.
    if (rank.rank == 2) std::_Exit(0);
    const std::string failed_on_0 = rank.rendezvous.file_store + "-failed-on-0";
    const std::string failed_on_1 = rank.rendezvous.file_store + "-failed-on-1";
    const auto wait_for_file = [](const std::string& file) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (!std::filesystem::exists(file)) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      return true;
    };
    if (rank.rank == 1) {
      ASSERT_TRUE(wait_for_file(failed_on_0));
    }
    EXPECT_THROW(rank.plain->all_gather(at::zeros({3}), at::ones({1}), {})->wait(), RuntimeError);
    std::ofstream(rank.rank == 0 ? failed_on_0 : failed_on_1) << "failed";
    if (rank.rank == 0) {
      EXPECT_TRUE(wait_for_file(failed_on_1));
    }
  });
}

// Half of the ranks do one thing, the others another. Over shared memory both sides say so at once. Over Gloo
// a side that has waited long enough does.
TEST_P(Failures, DifferentCollectivesAreNamed) {
  const auto all_gather = [](Communicator& group, int64_t numel, at::ScalarType dtype = at::kFloat) {
    return group.all_gather(at::zeros({2 * numel}, dtype), at::ones({numel}, dtype), {});
  };
  const auto reduce_scatter = [](Communicator& group, int64_t numel) {
    return group.reduce_scatter(at::zeros({numel}), at::ones({2 * numel}), {}, {});
  };
  const auto all_reduce = [](Communicator& group, ReduceOp op) {
    return group.all_reduce(at::ones({5}), {op}, {});
  };
  const auto two_parts = [](Communicator& group, int64_t second) {
    return group.partwise()->all_gather(
        {{at::zeros({8}), at::ones({4})}, {at::zeros({2 * second}), at::ones({second})}}, {});
  };
  struct Case {
    std::function<WorkPtr(Communicator&)> by_0, by_1;
    std::string text_0, text_1;
  };
  const std::vector<Case> cases = {
      {[=](auto& group) { return reduce_scatter(group, 12); },
       [=](auto& group) { return all_gather(group, 12); }, "reduce_scatter of 24 x float32 in blocks of 12",
       "all_gather of 12 x float32"},
      {[=](auto& group) { return all_gather(group, 12); }, [=](auto& group) { return all_gather(group, 13); },
       "all_gather of 12 x float32", "all_gather of 13 x float32"},
      {[=](auto& group) { return all_gather(group, 12); },
       [=](auto& group) { return all_gather(group, 12, at::kInt); }, "all_gather of 12 x float32",
       "all_gather of 12 x int32"},
      {[=](auto& group) { return all_reduce(group, ReduceOp::max); },
       [=](auto& group) { return all_reduce(group, ReduceOp::sum); }, "all_reduce (max) of 5 x float32",
       "all_reduce of 5 x float32"},
      {[=](auto& group) { return two_parts(group, 6); }, [=](auto& group) { return two_parts(group, 7); },
       "all_gather of 2 tensors, of which tensor 1 is 6 x float32",
       "all_gather of 2 tensors, of which tensor 1 is 7 x float32"},
      {[=](auto& group) { return group.broadcast(at::ones({4}), 1, {}); },
       [=](auto& group) { return all_gather(group, 4); }, "broadcast from rank 1 of 4 x float32",
       "all_gather of 4 x float32"},
  };
  for (const auto& each : cases) {
    run(2, [&each](const Rank& rank) {
      auto rendezvous = rank.rendezvous;
      rendezvous.file_store += "-short";
      rendezvous.timeout = std::chrono::seconds(1);
      const auto group = GetParam().make(rendezvous);
      group->all_reduce(at::ones({5}), {}, {})->wait();
      const auto text = message_of<RuntimeError>([&] {
        const auto work = (rank.rank == 0 ? each.by_0 : each.by_1)(*group);
        work->wait();
      });
      const auto own = rank.rank == 0 ? each.text_0 : each.text_1,
                 others = rank.rank == 0 ? each.text_1 : each.text_0;
      EXPECT_THAT(text, ::testing::HasSubstr("rank " + std::to_string(1 - rank.rank) + " issued " + others +
                                             " where rank " + std::to_string(rank.rank) + " issued " + own +
                                             " (collective 2 of this group"));
      barrier(rank);
    });
  }
}

/// A port of this host that was free just now.
int free_port() {
  const auto socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size), 0);
  ::close(socket);
  return ntohs(address.sin_port);
}
/// The same on all ranks.
int common_free_port(const Rank& rank) {
  const auto port = at::full({1}, static_cast<int64_t>(rank.rank == 0 ? free_port() : 0), at::kLong);
  rank.plain->broadcast(port, 0, {})->wait();
  return static_cast<int>(port.item<int64_t>());
}

void meet_ten_times(Rendezvous rendezvous, MakeCommunicator* make) {
  rendezvous.timeout = std::chrono::seconds(10);
  for (int round = 0; round < 10; ++round) {
    const auto one = make(rendezvous), other = make(rendezvous);
    const auto sum = at::ones({1});
    one->all_reduce(sum, {}, {})->wait();
    other->all_reduce(sum, {}, {})->wait();
    EXPECT_EQ(sum.item<float>(), 4);
  }
}
TEST_P(Meetings, ManyThroughOneFile) {
  run(2, [](const Rank& rank) {
    auto rendezvous = rank.rendezvous;
    rendezvous.file_store += "-many";
    meet_ten_times(rendezvous, GetParam().make);
    barrier(rank);
  });
}
TEST_P(Meetings, ManyThroughOnePort) {
  run(2, [](const Rank& rank) {
    auto rendezvous = rank.rendezvous;
    rendezvous.file_store.clear();
    rendezvous.port = static_cast<uint16_t>(common_free_port(rank));
    meet_ten_times(rendezvous, GetParam().make);
    barrier(rank);
  });
}

void set_variables(const std::map<std::string, std::string>& variables) {
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
}

// torchrun's agent serves the store, and outlives the attempts. Here ranks 0 and 1 are the first attempt,
// which breaks off while rank 0 makes a second group, and ranks 2 and 3 are the second.
TEST_P(Meetings, EachAttemptOfTorchrunHasItsOwn) {
  run(4, [](const Rank& rank) {
    const auto port = common_free_port(rank);
    c10::intrusive_ptr<c10d::Store> agents;
    if (rank.rank == 3) {
      c10d::TCPStoreOptions options;
      options.port = static_cast<uint16_t>(port);
      options.isServer = true;
      agents = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    }
    barrier(rank);
    for (int attempt = 0; attempt < 2; ++attempt) {
      if (rank.rank / 2 == attempt) {
        set_variables({{"RANK", std::to_string(rank.rank % 2)},
                       {"WORLD_SIZE", "2"},
                       {"MASTER_ADDR", "127.0.0.1"},
                       {"MASTER_PORT", std::to_string(port)},
                       {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                       {"TORCHELASTIC_RESTART_COUNT", std::to_string(attempt)}});
        auto rendezvous = rendezvous_from_environment();
        rendezvous.timeout = std::chrono::seconds(2);
        ::testing::internal::CaptureStderr();
        const auto group = GetParam().make(rendezvous);
        EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                    ::testing::Not(::testing::HasSubstr("server socket")));
        const auto sum = at::ones({1});
        group->all_reduce(sum, {}, {})->wait();
        EXPECT_EQ(sum.item<float>(), 2);
        if (rank.rank == 0) {
          EXPECT_THROW(GetParam().make(rendezvous), std::exception);
        }
      }
      barrier(rank);
    }
  });
}

class Environment : public ::testing::Test {
 protected:
  ~Environment() override {
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT",
                             "TORCHELASTIC_USE_AGENT_STORE"})
      unsetenv(name);
  }
  static Rendezvous with(std::map<std::string, std::string> variables, const std::string& file_store = {}) {
    variables.insert(
        {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "1"}});
    set_variables(variables);
    return rendezvous_from_environment(file_store);
  }
};

TEST_F(Environment, IsRead) {
  const auto rendezvous = with({{"MASTER_PORT", "65535"}});
  EXPECT_EQ(rendezvous.rank, 1);
  EXPECT_EQ(rendezvous.world_size, 2);
  EXPECT_EQ(rendezvous.host, "localhost");
  EXPECT_EQ(rendezvous.port, 65535);
  EXPECT_EQ(with({{"MASTER_PORT", "not asked for"}}, "/a/file").file_store, "/a/file");
  EXPECT_FALSE(rendezvous.served_elsewhere);
  EXPECT_TRUE(with({{"TORCHELASTIC_USE_AGENT_STORE", "True"}}).served_elsewhere);
  EXPECT_FALSE(with({{"TORCHELASTIC_USE_AGENT_STORE", "False"}}).served_elsewhere);
}

TEST_F(Environment, WrongNumbersAreNamed) {
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"MASTER_PORT", "abc"},
                                                        {"MASTER_PORT", ""},
                                                        {"MASTER_PORT", "0"},
                                                        {"MASTER_PORT", "65536"},
                                                        {"MASTER_PORT", "29500x"},
                                                        {"RANK", "2"},
                                                        {"RANK", "-1"},
                                                        {"RANK", "one"},
                                                        {"WORLD_SIZE", "0"},
                                                        {"WORLD_SIZE", "-2"},
                                                        {"WORLD_SIZE", "99999999999999999999"},
                                                        {"TORCHELASTIC_RESTART_COUNT", "-1"}}) {
    EXPECT_THAT(message_of<InvalidArgument>([&, name = name, value = value] {
                  with({{name, value}});
                }),
                ::testing::AllOf(::testing::HasSubstr(name), ::testing::HasSubstr("'" + value + "'")));
    unsetenv(name.c_str());
  }
}

}  // namespace
}  // namespace fsdp::testing
