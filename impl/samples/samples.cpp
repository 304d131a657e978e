// The code blocks of impl/README.md, each in a function that is run and checked.
//
//   fsdp_samples NAME      starts the sample's ranks itself, on this host
#include <ATen/ATen.h>
#include <sys/wait.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "fsdp/fsdp.hpp"

namespace {

using World = std::shared_ptr<fsdp::Communicator>;

FSDP_HOOKED_MODULE(Linear, torch::nn::LinearImpl);

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int64_t width)
      : up(register_module("up", torch::nn::Linear(width, 2 * width))),
        down(register_module("down", torch::nn::Linear(2 * width, width))) {}
  at::Tensor forward(const at::Tensor& x) { return x + down(up(x).relu()); }
  torch::nn::Linear up, down;
};
FSDP_HOOKED_MODULE(Block, BlockImpl);

struct NetImpl : torch::nn::Module {
  NetImpl() {
    for (int i = 0; i < 2; ++i) blocks.push_back(register_module("block" + std::to_string(i), Block(8)));
    head = register_module("head", torch::nn::Linear(8, 1));
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& block : blocks) x = block(x);
    return head(x);
  }
  std::vector<Block> blocks;
  torch::nn::Linear head{nullptr};
};
FSDP_HOOKED_MODULE(Net, NetImpl);

/// Every rank sees other data of the same function.
std::pair<at::Tensor, at::Tensor> batch(int64_t rank, int step) {
  at::manual_seed(static_cast<uint64_t>(1000 * rank + step));
  const auto x = at::randn({16, 8});
  return {x, x.pow(2).mean(1, true)};
}

Net make_net(uint64_t seed = 0) {
  at::manual_seed(seed);  // the same values on every rank
  return Net();
}

Net make_sharded_net(const World& world, uint64_t seed = 0, const fsdp::FullyShardOptions& more = {}) {
  auto model = make_net(seed);
  auto options = more;
  if (!options.mesh) options.mesh = fsdp::DeviceMesh(world);
  for (const auto& block : model->blocks) fsdp::fully_shard(block, options);
  fsdp::fully_shard(model, options);
  return model;
}

bool same(const fsdp::StateDict& a, const fsdp::StateDict& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!at::allclose(a[i].second, b[i].second, 1e-4, 1e-6)) return false;
  }
  return a.size() == b.size();
}

/// The same training without sharding: each rank's loss in turn.
fsdp::StateDict trained_whole(int64_t world_size, int steps, double lr, int micro_batches = 1) {
  auto model = make_net();
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(lr));
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    for (int64_t rank = 0; rank < world_size; ++rank) {
      for (int i = 0; i < micro_batches; ++i) {
        const auto [x, y] = batch(rank, step * micro_batches + i);
        (at::mse_loss(model(x), y) / (world_size * micro_batches)).backward();
      }
    }
    optimizer.step();
  }
  return fsdp::full_state_dict(*model);
}

void first(const World& world) {
  auto model = make_net();
  const fsdp::DeviceMesh mesh(world);
  for (const auto& block : model->blocks) fsdp::fully_shard(block, {.mesh = mesh});
  fsdp::fully_shard(model, {.mesh = mesh});  // last: the root gets what no block has

  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05));
  for (int step = 0; step < 3; ++step) {
    const auto [x, y] = batch(world->rank(), step);
    optimizer.zero_grad();
    at::mse_loss(model(x), y).backward();
    optimizer.step();
  }

  TORCH_CHECK(same(fsdp::full_state_dict(*model), trained_whole(world->size(), 3, 0.05)));
}

void mixed_precision(const World& world) {
  auto model = make_net();
  fsdp::FullyShardOptions options{.mesh = fsdp::DeviceMesh(world),
                                  .mp_policy = {.param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat}};
  for (const auto& block : model->blocks) fsdp::fully_shard(block, options);
  options.mp_policy.output_dtype = at::kFloat;  // of the whole model, not between its units
  fsdp::fully_shard(model, options);

  const auto [x, y] = batch(world->rank(), 0);
  const auto output = model(x);
  at::mse_loss(output, y).backward();
  TORCH_CHECK(output.scalar_type() == at::kFloat);
  const auto weight = model->blocks[0]->up->weight;
  TORCH_CHECK(weight.scalar_type() == at::kFloat && weight.grad().scalar_type() == at::kFloat);
  const auto whole = make_net()(x);
  TORCH_CHECK(!at::equal(output, whole) && at::allclose(output, whole, 0.1, 0.1), "computed in bfloat16");
}

void accumulation(const World& world) {
  auto model = make_sharded_net(world);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05));
  const int micro_batches = 3;
  for (int i = 0; i < micro_batches; ++i) {
    fsdp::FSDPModule::of(*model).set_requires_gradient_sync(i == micro_batches - 1);
    const auto [x, y] = batch(world->rank(), i);
    (at::mse_loss(model(x), y) / micro_batches).backward();
  }
  optimizer.step();
  optimizer.zero_grad();
  TORCH_CHECK(same(fsdp::full_state_dict(*model), trained_whole(world->size(), 1, 0.05, micro_batches)));
}

void hybrid(const World& world) {
  const fsdp::DeviceMesh mesh(world, {2, world->size() / 2}, {"replicate", "shard"});
  auto model = make_sharded_net(world, 0, {.mesh = mesh});
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05));
  const auto [x, y] = batch(world->rank(), 0);
  at::mse_loss(model(x), y).backward();
  optimizer.step();
  TORCH_CHECK(model->blocks[0]->up->weight.size(0) == 8, "half of 16 rows, not a quarter");
  TORCH_CHECK(same(fsdp::full_state_dict(*model), trained_whole(world->size(), 1, 0.05)));
}

void clipping(const World& world) {
  auto model = make_sharded_net(world);
  const auto [x, y] = batch(world->rank(), 0);
  (100 * at::mse_loss(model(x), y)).backward();
  const auto norm = fsdp::clip_grad_norm_(*model, /*max_norm=*/1.0);  // the norm before, equal on every rank
  TORCH_CHECK(norm.item<double>() > 1.0);
  const auto after = fsdp::clip_grad_norm_(*model, 1.0);
  TORCH_CHECK(at::allclose(after, at::ones({}), 1e-4, 0));
}

/// A model whose blocks are never whole in memory together.
struct LargeNetImpl : torch::nn::Module {
  LargeNetImpl() {
    for (int i = 0; i < 2; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), Block(8)));
      fsdp::to_meta(*blocks.back());  // at once: one block at a time has memory
    }
    head = register_module("head", torch::nn::Linear(8, 1));
    fsdp::to_meta(*head);
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& block : blocks) x = block(x);
    return head(x);
  }
  std::vector<Block> blocks;
  torch::nn::Linear head{nullptr};
};
FSDP_HOOKED_MODULE(LargeNet, LargeNetImpl);

void meta(const World& world) {
  const auto folder = std::filesystem::current_path() / "checkpoint";
  fsdp::save_checkpoint(folder, world, fsdp::sharded_state_dict(*make_sharded_net(world)));

  LargeNet model;  // see to_meta in its constructor
  for (const auto& block : model->blocks) fsdp::fully_shard(block, {.mesh = fsdp::DeviceMesh(world)});
  fsdp::fully_shard(model, {.mesh = fsdp::DeviceMesh(world)});
  fsdp::to_empty(*model, at::kCPU);              // memory for this rank's shards
  fsdp::load_checkpoint(folder, world, *model);  // values; or fsdp::load_full_state_dict

  TORCH_CHECK(same(fsdp::full_state_dict(*model), fsdp::full_state_dict(*make_net())));
}

void checkpoint(const World& world) {
  const auto folder = std::filesystem::current_path() / "checkpoint";
  const auto step = [&](Net& model, torch::optim::Optimizer& optimizer) {
    const auto [x, y] = batch(world->rank(), 0);
    optimizer.zero_grad();
    at::mse_loss(model(x), y).backward();
    optimizer.step();
  };
  auto model = make_sharded_net(world);
  torch::optim::AdamW optimizer(model->parameters());
  step(model, optimizer);

  fsdp::save_checkpoint(folder, world, fsdp::sharded_state_dict(*model),
                        fsdp::sharded_optimizer_state(*model, fsdp::optim::state_of(optimizer)));

  auto resumed = make_sharded_net(world, 1);
  torch::optim::AdamW resumed_optimizer(resumed->parameters());
  fsdp::optim::load_state(resumed_optimizer, fsdp::load_checkpoint(folder, world, *resumed));

  step(model, optimizer);
  step(resumed, resumed_optimizer);
  const auto expected = fsdp::full_state_dict(*model), actual = fsdp::full_state_dict(*resumed);
  for (size_t i = 0; i < expected.size(); ++i)
    TORCH_CHECK(at::equal(actual[i].second, expected[i].second), expected[i].first);
}

void state_dicts(const World& world) {
  const auto file = (std::filesystem::current_path() / "model.pt").string();
  auto model = make_sharded_net(world);
  const auto whole = fsdp::full_state_dict(*model);  // every rank must call it
  if (world->rank() == 0) {
    torch::serialize::OutputArchive archive;
    for (const auto& [name, value] : whole) archive.write(name, value);
    archive.save_to(file);
  }
  auto other = make_sharded_net(world, 1);
  fsdp::load_full_state_dict(*other, whole);  // each rank cuts out its own part

  // Or the first rank alone has it, read from a file, say, and sends the others their parts.
  auto third = make_sharded_net(world, 2);
  fsdp::broadcast_full_state_dict(*third, world->rank() == 0 ? whole : fsdp::StateDict());

  world->all_reduce(at::zeros({1}), {}, {})->wait();  // the file is there
  torch::serialize::InputArchive archive;
  archive.load_from(file);
  at::Tensor bias;
  archive.read("head.bias", bias);
  TORCH_CHECK(at::equal(bias, whole.back().second));
  TORCH_CHECK(same(fsdp::full_state_dict(*other), whole));
  TORCH_CHECK(same(fsdp::full_state_dict(*third), whole));
}

void fsdp1(const World& world) {
  auto model = make_net();
  const auto blocks = std::vector{fsdp::class_of<BlockImpl>("Block")};
  fsdp::flat::FullyShardedDataParallel fsdp1(
      model, {.process_group = world,
              .auto_wrap_policy = std::make_shared<fsdp::flat::ModuleWrapPolicy>(blocks),
              .use_orig_params = true});
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05));

  const int micro_batches = 3;
  for (int i = 0; i < micro_batches; ++i) {
    std::optional<fsdp::flat::Scope> no_sync;
    if (i + 1 < micro_batches) no_sync.emplace(fsdp1.no_sync());
    const auto [x, y] = batch(world->rank(), i);
    (at::mse_loss(model(x), y) / micro_batches).backward();
  }
  fsdp1.clip_grad_norm_(/*max_norm=*/1e6);
  optimizer.step();

  TORCH_CHECK(fsdp::flat::named_units(*model).size() == 3);
  TORCH_CHECK(
      same(fsdp::flat::full_state_dict(*model), trained_whole(world->size(), 1, 0.05, micro_batches)));
}

/// Its own hooks: forward takes and returns what it likes.
struct Batch {
  at::Tensor tokens;
  std::string source;
};
template <class F>
void visit_tensors(Batch& batch, F&& f) {
  fsdp::visit_tensors(batch.tokens, f);
}

struct OwnImpl : torch::nn::Module, fsdp::HookSlot {
  OwnImpl() : layer(register_module("layer", torch::nn::Linear(8, 8))) {}
  at::Tensor forward(Batch batch) {
    return fsdp::run_hooked(
        *this, [this](Batch& hooked) { return layer(hooked.tokens); }, batch);
  }
  torch::nn::Linear layer;
};
TORCH_MODULE(Own);

void hooks(const World& world) {
  Own model;
  fsdp::fully_shard(model, {.mesh = fsdp::DeviceMesh(world)});
  const auto output = model(Batch{at::ones({2, 8}), "file 3"});
  output.sum().backward();
  TORCH_CHECK(model->layer->weight.grad().defined());
}

void errors(const World& world) {
  torch::nn::Linear plain(8, 8);  // not made to be hooked
  std::string message;
  try {
    fsdp::fully_shard(plain, {.mesh = fsdp::DeviceMesh(world)});
  } catch (const fsdp::Error& error) {  // InvalidArgument, InvalidState, NotImplemented or RuntimeError
    message = error.what();
  }
  TORCH_CHECK(message.find("fsdp::HookSlot") != std::string::npos, message);
}

struct Sample {
  void (*run)(const World&);
  int64_t ranks = 2;
};
const std::map<std::string, Sample> kSamples{{"first", {first}},
                                             {"mixed_precision", {mixed_precision}},
                                             {"accumulation", {accumulation}},
                                             {"hybrid", {hybrid, 4}},
                                             {"clipping", {clipping}},
                                             {"meta", {meta}},
                                             {"checkpoint", {checkpoint, 3}},
                                             {"state_dicts", {state_dicts}},
                                             {"fsdp1", {fsdp1}},
                                             {"hooks", {hooks}},
                                             {"errors", {errors}}};

int act(const Sample& sample, const fsdp::Rendezvous& rendezvous) {
  try {
    at::set_num_threads(1);
    sample.run(fsdp::make_shm_communicator(rendezvous));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %ld: %s\n", static_cast<long>(rendezvous.rank), error.what());
    return 1;
  }
}

}  // namespace

int main(int count, char** arguments) {
  const auto sample = kSamples.find(count == 2 ? arguments[1] : "");
  if (sample == kSamples.end()) {
    std::fputs("usage: fsdp_samples NAME; the samples are", stderr);
    for (const auto& [name, run] : kSamples) std::fprintf(stderr, " %s", name.c_str());
    std::fputs("\n", stderr);
    return 2;
  }
  // Ranks work in a folder of their own. They are forked before anything uses LibTorch's thread pools, which
  // do not survive it.
  auto folder = (std::filesystem::temp_directory_path() / "fsdp-samples-XXXXXX").string();
  if (!mkdtemp(folder.data())) {
    std::perror("cannot make a folder for the ranks");
    return 1;
  }
  std::filesystem::current_path(folder);
  std::vector<pid_t> ranks;
  for (int64_t rank = 0; rank < sample->second.ranks; ++rank) {
    const auto pid = fork();
    if (pid == 0) {
      const auto status =
          act(sample->second,
              {.rank = rank, .world_size = sample->second.ranks, .file_store = folder + "/store"});
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
