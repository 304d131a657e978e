#include "tests/ranks.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <thread>
#include <vector>

#include "fsdp/comm/gloo.hpp"

namespace fsdp::testing {
namespace {

constexpr auto kDeadline = std::chrono::seconds(60);

[[noreturn]] void act(MakeCommunicator* make, int64_t rank, int64_t world, const std::string& store,
                      const std::function<void(const Rank&)>& body) {
  int status = 0;
  try {
    at::set_num_threads(1);
    Rendezvous rendezvous;
    rendezvous.rank = rank;
    rendezvous.world_size = world;
    rendezvous.file_store = store;
    rendezvous.timeout = kDeadline;
    const auto plain = make(rendezvous);
    // A body without communication may end before its peers have connected to this rank.
    plain->all_reduce(at::zeros({1}, plain->device()), {}, {})->wait();
    const auto trace = std::make_shared<Trace>();
    body({rank, world, plain, recording(plain, trace), trace, rendezvous});
    status = ::testing::Test::HasFailure() ? 1 : 0;
  } catch (const std::exception& error) {
    std::cerr << "rank " << rank << " of " << world << ": " << error.what() << std::endl;
    status = 2;
  }
  std::cout.flush();
  std::_Exit(status);
}

}  // namespace

void run_ranks(int64_t world, const std::function<void(const Rank&)>& body) {
  run_ranks(make_gloo_communicator, world, body);
}

void run_ranks(MakeCommunicator* make, int64_t world, const std::function<void(const Rank&)>& body) {
  const auto folder = (std::filesystem::temp_directory_path() / "fsdp-test-XXXXXX").string();
  std::vector<char> path(folder.begin(), folder.end());
  path.push_back('\0');
  ASSERT_NE(mkdtemp(path.data()), nullptr);
  const auto store = std::string(path.data()) + "/store";
  std::cout.flush();
  std::vector<pid_t> ranks;
  for (int64_t rank = 0; rank < world; ++rank) {
    const auto pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) act(make, rank, world, store, body);
    ranks.push_back(pid);
  }
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    int status = 0;
    while (waitpid(ranks[rank], &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > end) kill(ranks[rank], SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    EXPECT_TRUE(WIFEXITED(status)) << "rank " << rank << " of " << world << " ended by signal "
                                   << WTERMSIG(status);
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), 0) << "rank " << rank << " of " << world;
    }
  }
  std::filesystem::remove_all(path.data());
}

}  // namespace fsdp::testing
