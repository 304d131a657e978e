// The order of collectives: implicit prefetch in backward, explicit ones in both directions.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/models.hpp"
#include "tests/ranks.hpp"

namespace fsdp::testing {
namespace {

using Order = std::vector<std::string>;

/// "gather layer1", "reduce layer1", …; "forward layer1" and "backward layer1" mark when its computation
/// begins.
struct Recorder {
  Order events;
  void collect(Trace& trace) {
    for (const auto& event : trace.take()) {
      events.push_back((event.kind == CollectiveKind::all_gather ? "gather " : "reduce ") +
                       (event.site.unit.empty() ? "root" : event.site.unit));
    }
  }
};

/// Like Mlp, and notes when each layer computes.
struct ChainImpl : torch::nn::Module {
  explicit ChainImpl(Recorder& recorder, Trace& trace) : note(recorder), events(trace) {
    for (int i = 0; i < 3; ++i) layers.push_back(register_module("layer" + std::to_string(i), Linear(4, 4)));
    scale = register_parameter("scale", at::ones({4}));
  }
  at::Tensor forward(const at::Tensor& input) {
    auto x = input * scale;
    for (size_t i = 0; i < layers.size(); ++i) {
      x = layers[i](x);
      mark("forward layer" + std::to_string(i));
      x.register_hook([this, i](const at::Tensor&) { mark("backward layer" + std::to_string(i)); });
    }
    return x;
  }
  void mark(const std::string& what) {
    note.collect(events);
    note.events.push_back(what);
  }
  Recorder& note;
  Trace& events;
  std::vector<Linear> layers;
  at::Tensor scale;
};
FSDP_HOOKED_MODULE(Chain, ChainImpl);

Order step(const Rank& rank, const FullyShardOptions& options,
           const std::function<void(Chain&)>& configure = nullptr) {
  Recorder recorder;
  Chain model(recorder, *rank.trace);
  initialize(*model);
  auto with_mesh = options;
  with_mesh.mesh = rank.mesh();
  for (const auto& layer : model->layers) fully_shard(layer, with_mesh);
  fully_shard(model, with_mesh);
  if (configure) configure(model);
  model(values({2, 4}, rank.rank)).sum().backward();
  recorder.collect(*rank.trace);
  return recorder.events;
}

const Order kForward = {"gather root",    "gather layer0", "forward layer0", "gather layer1",
                        "forward layer1", "gather layer2", "forward layer2"};

Order joined(Order first, const Order& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

TEST(Prefetch, ImplicitInBackward) {
  run_ranks(2, [](const Rank& rank) {
    // The root's output gradient comes first and gathers the last layer; every layer gathers the one before
    // it.
    EXPECT_EQ(step(rank, {}),
              joined(kForward, {"gather layer2", "gather layer1", "backward layer2", "reduce layer2",
                                "gather layer0", "backward layer1", "reduce layer1", "backward layer0",
                                "reduce layer0", "reduce root"}));
  });
}

TEST(Prefetch, ExplicitInForward) {
  run_ranks(2, [](const Rank& rank) {
    const auto order = step(rank, {}, [](Chain& model) {
      FSDPModule::of(*model).set_modules_to_forward_prefetch(
          {model->layers[0].ptr(), model->layers[1].ptr()});
      FSDPModule::of(*model->layers[0]).set_modules_to_forward_prefetch({model->layers[2].ptr()});
    });
    EXPECT_EQ(Order(order.begin(), order.begin() + 7),
              (Order{"gather root", "gather layer0", "gather layer1", "gather layer2", "forward layer0",
                     "forward layer1", "forward layer2"}));
  });
}

TEST(Prefetch, ExplicitInBackwardReplacesTheImplicitOne) {
  run_ranks(2, [](const Rank& rank) {
    const auto order = step(rank, {}, [](Chain& model) {
      FSDPModule::of(*model->layers[2])
          .set_modules_to_backward_prefetch({model->layers[0].ptr(), model->layers[1].ptr()});
    });
    EXPECT_EQ(Order(order.begin() + 7, order.begin() + 11),
              (Order{"gather layer2", "gather layer0", "gather layer1", "backward layer2"}));
    EXPECT_EQ(std::count(order.begin(), order.end(), "gather layer0"), 2);
  });
}

TEST(Prefetch, UnshardInBackwardCanBeSwitchedOff) {
  run_ranks(2, [](const Rank& rank) {
    Linear embedding(4, 4);  // its backward for a constant input needs no weight
    auto unit = fully_shard(embedding, {.mesh = rank.mesh(), .reshard_after_forward = true});
    unit.set_unshard_in_backward(false);
    embedding(values({2, 4}, rank.rank)).sum().backward();
    EXPECT_EQ(rank.trace->take().size(), 2U);
    EXPECT_TRUE(embedding->weight.grad().defined());
  });
}

}  // namespace
}  // namespace fsdp::testing
