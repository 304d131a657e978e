// Checkpoints on disk: another number of ranks, another engine; damage and death.
#include "fsdp/checkpoint.hpp"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <torch/optim/adamw.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "fsdp/comm/shm.hpp"
#include "fsdp/flat/fully_sharded_data_parallel.hpp"
#include "fsdp/flat/state_dict.hpp"
#include "fsdp/optim.hpp"
#include "tests/formula_gradients.hpp"
#include "tests/models.hpp"
#include "tests/ranks.hpp"

namespace fsdp::testing {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

/// A folder that is gone with the test.
struct Folder {
  Folder() {
    auto name = (fs::temp_directory_path() / "fsdp-checkpoint-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path); }
  fs::path path;
};

enum class Form { unsharded, rows, columns, hybrid, original_parameters, flat_parameters };
const char* name_of(Form form) {
  constexpr const char* names[] = {"unsharded", "rows", "columns", "hybrid", "original", "flat"};
  return names[static_cast<int>(form)];
}
bool is_flat(Form form) {
  return form == Form::original_parameters || form == Form::flat_parameters;
}

/// A model and its optimizer. 12 columns can be cut by 2, 3 and 4; the other sizes by none of them.
struct Training {
  Training(const Rank& rank, Form form, int64_t salt)
      : world(rank.plain), form(form), model(std::vector<int64_t>{12, 7, 5}, true) {
    initialize(*model, salt);
    model->register_buffer("counter", at::full({2}, salt, at::kLong));
    model->register_buffer("level", at::scalar_tensor(static_cast<double>(salt), at::kDouble));
    FullyShardOptions options{.mesh = DeviceMesh(world)};
    if (form == Form::hybrid)
      options.mesh = DeviceMesh(world, {2, world->size() / 2}, {"replicate", "shard"});
    if (form == Form::columns) {
      options.shard_placement_fn = [](const at::Tensor& parameter) {
        return std::optional<int64_t>(parameter.dim() == 2 && parameter.size(1) == 12 ? 1 : 0);
      };
    }
    if (is_flat(form)) {
      const flat::FSDPOptions flat_options{.process_group = world,
                                           .use_orig_params = form == Form::original_parameters};
      for (const auto& layer : model->layers) flat::FullyShardedDataParallel(layer, flat_options);
      flat::FullyShardedDataParallel(model, flat_options);
    } else if (form != Form::unsharded) {
      shard(model, options);
    }
    optimizer = std::make_unique<torch::optim::AdamW>(model->parameters(),
                                                      torch::optim::AdamWOptions(0.01).amsgrad(true));
  }
  void step(int64_t salt) {
    is_flat(form) ? set_flat_gradients(*model, salt) : set_gradients(*model, salt);
    optimizer->step();
  }
  void save(const fs::path& folder) {
    const auto state = optim::state_of(*optimizer);
    if (is_flat(form)) {
      save_checkpoint(folder, world, flat::sharded_state_dict(*model),
                      flat::sharded_optimizer_state(*model, state), {format});
    } else {
      save_checkpoint(folder, world, sharded_state_dict(*model), sharded_optimizer_state(*model, state),
                      {format});
    }
  }
  void load(const fs::path& folder) { optim::load_state(*optimizer, load_checkpoint(folder, world, *model)); }
  StateDict values() const { return is_flat(form) ? flat::full_state_dict(*model) : full_state_dict(*model); }
  FullOptimizerState optimizer_values() const {
    const auto state = optim::state_of(*optimizer);
    return is_flat(form) ? flat::full_optimizer_state(*model, state) : full_optimizer_state(*model, state);
  }

  std::shared_ptr<Communicator> world;
  Form form;
  CheckpointFormat format = CheckpointFormat::own;
  Mlp model;
  std::unique_ptr<torch::optim::AdamW> optimizer;
};

void expect_same(const Training& actual, const Training& expected) {
  const auto values = actual.values(), expected_values = expected.values();
  ASSERT_EQ(values.size(), expected_values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(values[i].first, expected_values[i].first);
    EXPECT_TRUE(at::equal(values[i].second, expected_values[i].second)) << values[i].first;
  }
  const auto state = actual.optimizer_values(), expected_state = expected.optimizer_values();
  ASSERT_EQ(state.size(), expected_state.size());
  for (size_t i = 0; i < state.size(); ++i) {
    EXPECT_EQ(state[i].first, expected_state[i].first);
    ASSERT_EQ(state[i].second.size(), expected_state[i].second.size());
    for (const auto& [name, value] : expected_state[i].second)
      EXPECT_TRUE(at::equal(state[i].second.at(name), value)) << state[i].first << "/" << name;
  }
}

using Journey = std::array<Form, 3>;
class Checkpoints : public ::testing::TestWithParam<std::tuple<Journey, CheckpointFormat>> {};

// 4 ranks save, 2 load and save, 3 load and take the step that the 4 took after saving.
TEST_P(Checkpoints, FourTwoThreeRanksBitForBit) {
  const Folder folder;
  const auto [journey, format] = GetParam();
  const auto [four, two, three] = journey;
  run_ranks(make_shm_communicator, 4, [&, form = four, format = format](const Rank& rank) {
    Training run(rank, form, 1);
    run.format = format;
    run.step(1);
    run.step(2);
    run.save(folder.path / "four");
    run.step(3);
    run.save(folder.path / "expected");
  });
  run_ranks(make_shm_communicator, 2, [&, form = two, format = format](const Rank& rank) {
    Training run(rank, form, 5);
    run.format = format;
    run.load(folder.path / "four");
    run.save(folder.path / "two");
  });
  run_ranks(make_shm_communicator, 3, [&, form = three](const Rank& rank) {
    Training run(rank, form, 6), expected(rank, Form::unsharded, 7), before(rank, Form::unsharded, 8);
    before.load(folder.path / "four");
    run.load(folder.path / "two");
    expect_same(run, before);
    run.step(3);
    before.step(3);
    expected.load(folder.path / "expected");
    expect_same(run, expected);
    expect_same(before, expected);
    EXPECT_EQ(run.values().back().second.item<double>(), 1) << "a buffer without dimensions";
  });
}

INSTANTIATE_TEST_SUITE_P(
    Journeys, Checkpoints,
    ::testing::Combine(::testing::Values(Journey{Form::rows, Form::rows, Form::rows},
                                         Journey{Form::rows, Form::original_parameters, Form::columns},
                                         Journey{Form::rows, Form::rows, Form::original_parameters},
                                         Journey{Form::columns, Form::flat_parameters, Form::rows},
                                         Journey{Form::original_parameters, Form::columns,
                                                 Form::flat_parameters},
                                         Journey{Form::hybrid, Form::hybrid, Form::unsharded}),
                       ::testing::Values(CheckpointFormat::own, CheckpointFormat::torch_distributed)),
    [](const auto& of) {
      const auto& forms = std::get<0>(of.param);
      return std::string(name_of(forms[0])) + "_" + name_of(forms[1]) + "_" + name_of(forms[2]) +
             (std::get<1>(of.param) == CheckpointFormat::own ? "" : "_distributed");
    });

void barrier(const Rank& rank) {
  rank.plain->all_reduce(at::zeros({1}), {}, {})->wait();
}

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void overwrite(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

TEST(CheckpointDamage, IsRefusedOnEveryRankAndChangesNothing) {
  const Folder folder;
  run_ranks(make_shm_communicator, 2, [&](const Rank& rank) {
    Training(rank, Form::rows, 1).save(folder.path);
    Training run(rank, Form::rows, 5);
    run.step(1);
    const auto values = run.values();
    const auto file = folder.path / "1.1-of-2.safetensors", manifest = folder.path / "manifest";
    // The file's last bytes are the values of rank 1 for the last parameter in it.
    const auto refused = [&](const fs::path& path, const std::function<void(std::string & text)>& damage,
                             const std::string& expected) {
      const auto good = content(path);
      barrier(rank);
      if (rank.rank == 0) {
        auto bad = good;
        damage(bad);
        bad.empty() ? static_cast<void>(fs::remove(path)) : overwrite(path, bad);
      }
      barrier(rank);
      const auto message = message_of<RuntimeError>([&] { run.load(folder.path); });
      EXPECT_THAT(message, HasSubstr(expected));
      EXPECT_THAT(message, HasSubstr(path.string()));
      EXPECT_THAT(message, HasSubstr("rank "));
      const auto now = run.values();
      for (size_t i = 0; i < now.size(); ++i)
        EXPECT_TRUE(at::equal(now[i].second, values[i].second)) << now[i].first;
      barrier(rank);
      if (rank.rank == 0) overwrite(path, good);
      barrier(rank);
    };
    refused(
        file, [](std::string& text) { text.back() ^= 1; },
        "rank 1: " + file.string() + " is damaged: the values of '");
    refused(
        file, [](std::string& text) { text.pop_back(); }, "bytes, the manifest says");
    refused(
        file, [](std::string& text) { text.clear(); }, "is missing");
    refused(
        manifest, [](std::string& text) { text[text.size() / 2] ^= 1; }, "its checksum does not fit");
    refused(
        manifest, [](std::string& text) { text.resize(text.size() / 2); }, "its checksum does not fit");
    refused(
        manifest, [](std::string& text) { text.clear(); }, "the folder holds no checkpoint");
    refused(
        manifest, [](std::string& text) { text[16] = '2'; }, "no manifest of this version");
    run.load(folder.path);
    EXPECT_TRUE(at::equal(run.values()[0].second, Training(rank, Form::unsharded, 1).values()[0].second));
  });
}

TEST(CheckpointDamage, OfTheDistributedFormatIsRefused) {
  const Folder folder;
  run_ranks(make_shm_communicator, 2, [&](const Rank& rank) {
    Training saved(rank, Form::rows, 1);
    saved.step(1);
    saved.format = CheckpointFormat::torch_distributed;
    saved.save(folder.path);
    Training run(rank, Form::rows, 5);
    run.step(1);
    const auto values = run.values();
    const auto file = folder.path / "__1_1.distcp", metadata = folder.path / ".metadata";
    using Damage = std::function<void(std::string & text)>;
    const auto refused = [&](const fs::path& path, const Damage& damage, const std::string& expected) {
      const auto good = content(path);
      barrier(rank);
      if (rank.rank == 0) {
        auto bad = good;
        damage(bad);
        overwrite(path, bad);
      }
      barrier(rank);
      const auto message = message_of<RuntimeError>([&] { run.load(folder.path); });
      EXPECT_THAT(message, HasSubstr(expected));
      EXPECT_THAT(message, HasSubstr(folder.path.string()));
      const auto now = run.values();
      for (size_t i = 0; i < now.size(); ++i)
        EXPECT_TRUE(at::equal(now[i].second, values[i].second)) << now[i].first;
      barrier(rank);
      if (rank.rank == 0) overwrite(path, good);
      barrier(rank);
    };
    const auto replaced = [](std::string from, std::string to) {
      return [from = std::move(from), to = std::move(to)](std::string& text) {
        ASSERT_NE(text.find(from), std::string::npos);
        text.replace(text.find(from), from.size(), to);
      };
    };
    refused(
        file, [](std::string& text) { text.resize(text.size() / 2); }, "bytes, .metadata says");
    refused(
        file, [](std::string& text) { text.replace(0, 64, 64, '?'); }, "is damaged at byte 0");
    refused(
        metadata, [](std::string& text) { text.resize(text.size() / 2); }, "it ends there");
    refused(
        metadata, [](std::string& text) { text.resize(2); }, "it ends there");
    refused(
        metadata, [](std::string& text) { text[2] = '\x82'; }, "stands for no plain data");
    refused(
        metadata, [](std::string& text) { text = "\x80\x02s."; }, "nothing is there to take");
    refused(
        metadata, [](std::string& text) { text = "\x80\x02N."; }, "it holds a ''");
    refused(metadata, replaced("Metadata\n", "Netadata\n"), "it holds a '");
    refused(metadata, replaced("float32", "float33"), "is none that a checkpoint of this library holds");
    refused(metadata, replaced("offsets", "offsetz"), "has no attribute 'offsets'");
    refused(metadata, replaced("__1_1.distcp", "__1_7.distcp"), "__1_7.distcp is missing");
    run.load(folder.path);
    EXPECT_TRUE(at::equal(run.values()[0].second, saved.values()[0].second));
  });
}

TEST(CheckpointDamage, OfAnotherModelOrWithoutRows) {
  const Folder folder;
  run_ranks(make_shm_communicator, 2, [&](const Rank& rank) {
    Training run(rank, Form::rows, 1);
    run.save(folder.path);
    Mlp other(std::vector<int64_t>{12, 8}, true);
    shard(other, {.mesh = rank.mesh()});
    auto message = message_of<RuntimeError>([&] { load_checkpoint(folder.path, rank.plain, *other); });
    EXPECT_THAT(message, HasSubstr("rank 0, 1: Error(s) in loading state_dict for"));
    EXPECT_THAT(message,
                HasSubstr("size mismatch for layer0.weight: the state has shape torch.Size([7, 12]), the "
                          "module expects torch.Size([8, 12])"));
    EXPECT_THAT(message, HasSubstr("Unexpected key(s) in state_dict:"));

    // A rank that leaves a parameter out would leave a hole.
    auto state = sharded_state_dict(*run.model);
    if (rank.rank == 1)
      std::erase_if(state, [](const auto& entry) { return entry.first == "layer1.weight"; });
    save_checkpoint(folder.path, rank.plain, state);
    message = message_of<RuntimeError>([&] { run.load(folder.path); });
    EXPECT_THAT(message, HasSubstr("does not hold indices 3 to 5 of dimension 0 of torch.Size([5, 7]) of "
                                   "'layer1.weight' completely"));

    Training meta(rank, Form::unsharded, 1);
    to_meta(*meta.model);
    shard(meta.model, {.mesh = rank.mesh()});
    EXPECT_THAT(message_of<RuntimeError>(
                    [&] { save_checkpoint(folder.path, rank.plain, sharded_state_dict(*meta.model)); }),
                HasSubstr("'scale' has no values: it is on the meta device"));
    EXPECT_THAT(message_of<RuntimeError>([&] { load_checkpoint(folder.path, rank.plain, *meta.model); }),
                HasSubstr("call fsdp::to_empty first"));
  });
}

TEST(CheckpointFolder, HoldsEachValueOnceAndNoOldFile) {
  const Folder folder;
  run_ranks(make_shm_communicator, 4, [&](const Rank& rank) {
    Training run(rank, Form::hybrid, 1);
    run.save(folder.path);
    run.step(1);
    run.save(folder.path);
    if (rank.rank != 0) return;
    std::set<std::string> names;
    int64_t bytes = 0;
    for (const auto& entry : fs::directory_iterator(folder.path)) {
      names.insert(entry.path().filename());
      if (entry.path().extension() != ".safetensors") continue;
      uint64_t header = 0;
      std::ifstream(entry.path(), std::ios::binary).read(reinterpret_cast<char*>(&header), sizeof header);
      bytes += static_cast<int64_t>(entry.file_size() - sizeof header - header);
    }
    EXPECT_EQ(names, (std::set<std::string>{"manifest", "2.0-of-4.safetensors", "2.1-of-4.safetensors",
                                            "2.2-of-4.safetensors", "2.3-of-4.safetensors"}));
    const int64_t parameters = 7 * 12 + 7 + 5 * 7 + 5 + 5;
    EXPECT_EQ(bytes, 4 * 4 * parameters + 3 * 8 + 5 * 8)
        << "values, three moments of each, buffers, five steps";
  });
}

TEST(CheckpointFolder, OneFormatTakesTheOthersPlace) {
  const Folder folder;
  run_ranks(make_shm_communicator, 2, [&](const Rank& rank) {
    const auto names = [&] {
      std::set<std::string> found;
      for (const auto& entry : fs::directory_iterator(folder.path)) found.insert(entry.path().filename());
      barrier(rank);
      return found;
    };
    Training run(rank, Form::rows, 1), loaded(rank, Form::original_parameters, 2);
    run.save(folder.path);
    run.step(1);
    run.format = CheckpointFormat::torch_distributed;
    run.save(folder.path);
    EXPECT_EQ(names(), (std::set<std::string>{".metadata", "__0_2.distcp", "__1_2.distcp"}));
    loaded.load(folder.path);
    expect_same(loaded, run);
    run.step(2);
    run.format = CheckpointFormat::own;
    run.save(folder.path);
    EXPECT_EQ(names(), (std::set<std::string>{"manifest", "3.0-of-2.safetensors", "3.1-of-2.safetensors"}));
    loaded.load(folder.path);
    expect_same(loaded, run);
  });
}

/// Dies, as by the kernel's hand, where it would take part in its n-th all-gather.
class Mortal : public Communicator {
 public:
  Mortal(std::shared_ptr<Communicator> inner, int64_t left) : inner_(std::move(inner)), left_(left) {}
  int64_t rank() const override { return inner_->rank(); }
  const std::vector<int64_t>& ranks() const override { return inner_->ranks(); }
  at::Device device() const override { return inner_->device(); }
  WorkPtr all_gather(at::Tensor out, at::Tensor in, const CallSite& site) override {
    if (--left_ == 0) raise(SIGKILL);
    return inner_->all_gather(std::move(out), std::move(in), site);
  }
  WorkPtr reduce_scatter(at::Tensor, at::Tensor, Reduction, const CallSite&) override { return nullptr; }
  WorkPtr all_reduce(at::Tensor, Reduction, const CallSite&) override { return nullptr; }
  WorkPtr broadcast(at::Tensor, int64_t, const CallSite&) override { return nullptr; }
  std::shared_ptr<Communicator> subgroup(const std::vector<int64_t>&) override { return nullptr; }

 private:
  std::shared_ptr<Communicator> inner_;
  int64_t left_;
};

/// Saves as two ranks, in a process whose output nobody sees: a rank of it may die.
void save_as_two_ranks(const fs::path& folder, int64_t salt, int64_t mortal_rank, int64_t dies_at,
                       bool while_writing) {
  const auto pid = fork();
  if (pid == 0) {
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    run_ranks(make_shm_communicator, 2, [&](const Rank& rank) {
      Training run(rank, Form::rows, salt);
      if (rank.rank == mortal_rank) {
        run.world = std::make_shared<Mortal>(rank.plain, dies_at);
        const rlimit limit{100, 100}, none{0, 0};
        setrlimit(RLIMIT_CORE, &none);
        if (while_writing) setrlimit(RLIMIT_FSIZE, &limit);
      }
      run.save(folder);
    });
    std::_Exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
}

/// The salt of the model that the checkpoint holds.
void expect_model(const fs::path& folder, int64_t salt) {
  run_ranks(1, [&](const Rank& rank) {
    Training run(rank, Form::unsharded, 9);
    run.load(folder);
    EXPECT_EQ(run.values().back().second.item<double>(), salt);
    EXPECT_TRUE(at::equal(run.values()[0].second, Training(rank, Form::unsharded, salt).values()[0].second));
  });
}

TEST(CheckpointKilled, LeavesTheOldOneOrTheNewOneWhole) {
  const Folder folder;
  save_as_two_ranks(folder.path, 1, 0, 100, false);
  expect_model(folder.path, 1);
  // Two all-gathers to plan, two to say that the files are there. Then rank 0 writes the manifest.
  int64_t held = 1, next = 2;
  for (const int64_t rank : {0, 1}) {
    for (const int64_t dies_at : {1, 2, 3, 4, 5, 6}) {
      SCOPED_TRACE("rank " + std::to_string(rank) + " dies at its all-gather " + std::to_string(dies_at));
      save_as_two_ranks(folder.path, next, rank, dies_at, false);
      if (dies_at >= 5) held = next;
      expect_model(folder.path, held);
      ++next;
    }
  }
  for (const int64_t rank : {0, 1}) {
    SCOPED_TRACE("rank " + std::to_string(rank) + " dies in the middle of its file");
    save_as_two_ranks(folder.path, next, rank, 100, true);
    expect_model(folder.path, held);
  }
  save_as_two_ranks(folder.path, 50, 0, 100, false);
  expect_model(folder.path, 50);
  int64_t files = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder.path)) ++files;
  EXPECT_EQ(files, 3) << "what the dead left is gone";
}

}  // namespace
}  // namespace fsdp::testing
