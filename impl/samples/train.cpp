// Trains a small network, sharded over two processes, and checks it against the same training without
// sharding.
//
//   train                                       starts its two ranks itself
//   RANK=0 WORLD_SIZE=2 MASTER_ADDR=… MASTER_PORT=… train      one rank of a group that torchrun or a person
//   started
#include <ATen/ATen.h>
#include <sys/wait.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "fsdp/comm/gloo.hpp"
#include "fsdp/fully_shard.hpp"
#include "fsdp/hooks.hpp"
#include "fsdp/state_dict.hpp"

namespace {

FSDP_HOOKED_MODULE(Linear, torch::nn::LinearImpl);

struct NetImpl : torch::nn::Module {
  NetImpl()
      : first(register_module("first", Linear(8, 32))),
        second(register_module("second", Linear(32, 32))),
        last(register_module("last", Linear(32, 1))) {}
  at::Tensor forward(const at::Tensor& x) { return last(second(first(x).relu()).relu()); }
  Linear first, second, last;
};
FSDP_HOOKED_MODULE(Net, NetImpl);

constexpr int kSteps = 20;
constexpr double kLearningRate = 0.05;

/// Every rank sees other data of the same function.
std::pair<at::Tensor, at::Tensor> batch(int64_t rank, int step) {
  at::manual_seed(static_cast<uint64_t>(1000 * rank + step));
  const auto x = at::randn({16, 8});
  return {x, x.pow(2).mean(1, true)};
}

at::Tensor loss_of(Net& net, int64_t rank, int step) {
  const auto [x, y] = batch(rank, step);
  return at::mse_loss(net(x), y);
}

void descend(const std::vector<at::Tensor>& parameters) {
  const at::NoGradGuard no_grad;
  for (const auto& parameter : parameters) {
    auto updated = parameter;
    updated.add_(parameter.grad(), -kLearningRate);
    parameter.mutable_grad().reset();
  }
}

int train(const fsdp::Rendezvous& rendezvous) {
  at::set_num_threads(1);
  const auto world = fsdp::make_gloo_communicator(rendezvous);
  Net net, unsharded;
  {
    const at::NoGradGuard no_grad;
    at::manual_seed(0);
    for (auto& parameter : net->parameters()) parameter.uniform_(-0.2, 0.2);
    const auto from = net->parameters();
    for (size_t i = 0; i < from.size(); ++i) unsharded->parameters()[i].copy_(from[i]);
  }
  // Children first; the root, which has no parameters of its own, only coordinates.
  const fsdp::FullyShardOptions sharding{.mesh = fsdp::DeviceMesh(world)};
  for (const auto& layer : {net->first, net->second, net->last}) fsdp::fully_shard(layer, sharding);
  fsdp::fully_shard(net, sharding);

  for (int step = 0; step < kSteps; ++step) {
    auto loss = loss_of(net, rendezvous.rank, step);
    loss.backward();
    descend(net->parameters());

    at::Tensor own_loss;
    for (int64_t rank = 0; rank < rendezvous.world_size; ++rank) {
      const auto other = loss_of(unsharded, rank, step);
      (other / rendezvous.world_size).backward();
      if (rank == rendezvous.rank) own_loss = other.detach();
    }
    descend(unsharded->parameters());
    if (rendezvous.rank == 0 && step % 5 == 4) {
      std::printf("step %2d  loss %.6f  unsharded %.6f\n", step + 1, loss.item<double>(),
                  own_loss.item<double>());
    }
    if (!at::allclose(loss.detach(), own_loss, 1e-4, 1e-6)) {
      std::fprintf(stderr, "rank %ld: the losses of step %d differ\n", static_cast<long>(rendezvous.rank),
                   step + 1);
      return 1;
    }
  }
  for (const auto& [name, value] : fsdp::full_state_dict(*net)) {
    if (!at::allclose(value, unsharded->named_parameters()[name].detach(), 1e-4, 1e-6)) {
      std::fprintf(stderr, "rank %ld: %s differs\n", static_cast<long>(rendezvous.rank), name.c_str());
      return 1;
    }
  }
  if (rendezvous.rank == 0) std::puts("sharded and unsharded training agree");
  return 0;
}

/// Forks before anything uses LibTorch's thread pools, which do not survive it.
int start_ranks(int64_t world_size) {
  auto folder = (std::filesystem::temp_directory_path() / "fsdp-example-XXXXXX").string();
  if (!mkdtemp(folder.data())) {
    std::perror("cannot make a folder for the ranks to meet in");
    return 1;
  }
  std::vector<pid_t> ranks;
  for (int64_t rank = 0; rank < world_size; ++rank) {
    const auto pid = fork();
    if (pid == 0) {
      fsdp::Rendezvous rendezvous;
      rendezvous.rank = rank;
      rendezvous.world_size = world_size;
      rendezvous.file_store = folder + "/store";
      const auto status = train(rendezvous);
      std::fflush(nullptr);
      std::_Exit(status);
    }
    ranks.push_back(pid);
  }
  int result = 0;
  for (const auto pid : ranks) {
    int status = 0;
    waitpid(pid, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) result = 1;
  }
  std::filesystem::remove_all(folder);
  return result;
}

}  // namespace

int main() {
  try {
    return std::getenv("RANK") ? train(fsdp::rendezvous_from_environment()) : start_ranks(2);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
