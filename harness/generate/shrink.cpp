#include "harness/generate/shrink.hpp"

#include <algorithm>
#include <set>

namespace fsdp_cts::generate {
namespace {

template <typename T>
std::vector<T> without(std::vector<T> list, std::size_t at) {
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
  return list;
}

// Calls `change` with every module that the sketch names; where it says no, what names it goes.
void for_modules(Sketch& sketch, const std::function<bool(ModuleAt&)>& change) {
  for (Unit& unit : sketch.units) std::erase_if(unit.modules, [&](ModuleAt& each) { return !change(each); });
  std::erase_if(sketch.units, [](const Unit& unit) { return unit.modules.empty(); });
  for (auto* list : {&sketch.frozen, &sketch.ignored, &sketch.columns, &sketch.halves})
    std::erase_if(*list, [&](ParameterAt& each) { return !change(each.module); });
  std::erase_if(sketch.outside, [&](ModuleAt& each) { return !change(each); });
  for (Iteration& iteration : sketch.iterations) {
    std::erase_if(iteration.before_step, [&](Aside& each) { return !change(each.at.module); });
    for (MicroBatch& micro_batch : iteration.micro_batches)
      std::erase_if(micro_batch.before, [&](Aside& each) { return !change(each.at.module); });
  }
}

Sketch without_block(Sketch sketch, int block) {
  // What kept its width now keeps the width before it.
  sketch.blocks.erase(sketch.blocks.begin() + block);
  for_modules(sketch, [&](ModuleAt& module) {
    if (module.block == block) return false;
    if (module.block > block) --module.block;
    return true;
  });
  return sketch;
}

Sketch with_plain_block(Sketch sketch, int block) {
  sketch.blocks[block].kind = BlockKind::linear;
  for_modules(sketch, [&](ModuleAt& module) { return module.block != block || module.inner < 0; });
  return sketch;
}

class Smaller {
 public:
  explicit Smaller(const Sketch& sketch) : sketch_(sketch) {}

  std::vector<Sketch> all() {
    iterations();
    blocks();
    ranks();
    units();
    parameters();
    making();
    asides();
    settings();
    micro_batches();
    plainer_blocks();
    sizes();
    return std::move(found_);
  }

 private:
  void add(Sketch smaller) {
    if (smaller == sketch_ || why_illegal(smaller)) return;
    found_.push_back(std::move(smaller));
  }
  // A copy with one change.
  template <typename Change>
  void with(Change change) {
    Sketch smaller = sketch_;
    change(smaller);
    add(std::move(smaller));
  }

  void iterations() {
    for (std::size_t i = sketch_.iterations.size(); i-- > 0;) {
      with([&](Sketch& s) { s.iterations = without(s.iterations, i); });
      for (std::size_t k = sketch_.iterations[i].micro_batches.size(); k-- > 0;)
        with([&](Sketch& s) { s.iterations[i].micro_batches = without(s.iterations[i].micro_batches, k); });
    }
  }

  void blocks() {
    for (int i = static_cast<int>(sketch_.blocks.size()); i-- > 0;) add(without_block(sketch_, i));
  }

  void ranks() {
    for (int world : {1, 2, 3, 4}) {
      if (world >= sketch_.world) break;
      with([&](Sketch& s) {
        s.world = world;
        s.mesh.clear();
        s.mesh_of_groups = false;
        for (Unit& unit : s.units) {
          if (unit.settings.contains("reshard_after_forward") &&
              unit.settings["reshard_after_forward"].is_number_integer())
            unit.settings["reshard_after_forward"] = true;
          const std::string strategy = unit.settings.value("sharding_strategy", "");
          if (strategy == "HYBRID_SHARD") unit.settings["sharding_strategy"] = "FULL_SHARD";
          if (strategy == "_HYBRID_SHARD_ZERO2") unit.settings["sharding_strategy"] = "SHARD_GRAD_OP";
        }
        for (Iteration& iteration : s.iterations)
          for (MicroBatch& each : iteration.micro_batches) each.all_reduce = true;
      });
    }
  }

  void units() {
    for (std::size_t i = 0; i < sketch_.units.size(); ++i) {
      with([&](Sketch& s) { s.units = without(s.units, i); });
      for (std::size_t k = 0; sketch_.units[i].modules.size() > 1 && k < sketch_.units[i].modules.size(); ++k)
        with([&](Sketch& s) { s.units[i].modules = without(s.units[i].modules, k); });
    }
  }

  void parameters() {
    for (std::size_t i = 0; i < sketch_.frozen.size(); ++i)
      with([&](Sketch& s) { s.frozen = without(s.frozen, i); });
    for (std::size_t i = 0; i < sketch_.ignored.size(); ++i)
      with([&](Sketch& s) { s.ignored = without(s.ignored, i); });
    with([](Sketch& s) { s.auto_wrap = nullptr; });
    with([](Sketch& s) { s.in_context = false; });
    with([](Sketch& s) { s.outside.clear(); });
    with([](Sketch& s) { s.root_gain = false; });
    with([](Sketch& s) { s.momentum = 0; });
    with([](Sketch& s) { s.weight_decay = 0; });
    with([](Sketch& s) {
      s.x_dtype = s.dtype = "float32";
      s.cast_late = false;
    });
    with([](Sketch& s) { s.cast_late = false; });
    with([](Sketch& s) { s.second.clear(); });
  }

  void making() {
    for (std::size_t i = 0; i < sketch_.refusals.size(); ++i)
      with([&](Sketch& s) { s.refusals = without(s.refusals, i); });
    for (std::size_t i = 0; i < sketch_.columns.size(); ++i)
      with([&](Sketch& s) { s.columns = without(s.columns, i); });
    for (std::size_t i = 0; i < sketch_.halves.size(); ++i)
      with([&](Sketch& s) { s.halves = without(s.halves, i); });
    for (bool Sketch::*flag : {&Sketch::meta, &Sketch::async_gathers, &Sketch::synced, &Sketch::host_inputs,
                               &Sketch::offload, &Sketch::step_in_backward, &Sketch::mesh_of_groups})
      with([&](Sketch& s) { s.*flag = false; });
    with([](Sketch& s) { s.resumed.reset(); });
    if (sketch_.resumed) {
      with([](Sketch& s) { s.resumed->root_alone = true; });
      with([](Sketch& s) { s.resumed->api = s.api; });
      with([](Sketch& s) { s.resumed->over.clear(); });
    }
    with([](Sketch& s) { s.comm_hook = 0; });
    with([](Sketch& s) { s.prefetch = Prefetch::by_itself; });
    with([](Sketch& s) { s.guard = false; });
    with([](Sketch& s) { s.full_precision_in_eval = false; });
    with([](Sketch& s) { s.order_checked = false; });
    with([](Sketch& s) {
      s.scale = 0;
      for (Iteration& iteration : s.iterations) {
        iteration.unscale = false;
        iteration.overflow.clear();
      }
    });
    with([](Sketch& s) {
      for (Unit& unit : s.units) unit.divide_factor = 0;
    });
    with([](Sketch& s) {
      for (Unit& unit : s.units) unit.force_sum = false;
    });
    with([](Sketch& s) {
      for (Unit& unit : s.units) unit.hook = 0;
    });
    with([](Sketch& s) {
      for (Unit& unit : s.units) unit.unshard_in_backward = true;
    });
  }

  void asides() {
    for (std::size_t i = 0; i < sketch_.iterations.size(); ++i) {
      for (std::size_t n = 0; n < sketch_.iterations[i].before_step.size(); ++n)
        with([&](Sketch& s) { s.iterations[i].before_step = without(s.iterations[i].before_step, n); });
      for (std::size_t k = 0; k < sketch_.iterations[i].micro_batches.size(); ++k)
        for (std::size_t n = 0; n < sketch_.iterations[i].micro_batches[k].before.size(); ++n)
          with([&](Sketch& s) {
            auto& before = s.iterations[i].micro_batches[k].before;
            before = without(before, n);
          });
    }
  }

  void settings() {
    std::set<std::string> keys;
    for (const Unit& unit : sketch_.units)
      for (const auto& [key, value] : unit.settings.items()) keys.insert(key);
    for (const std::string& key : keys)
      with([&](Sketch& s) {
        for (Unit& unit : s.units) unit.settings.erase(key);
      });
    for (const char* key :
         {"reduce_dtype", "output_dtype", "cast_forward_inputs", "keep_low_precision_grads"})
      with([&](Sketch& s) {
        for (Unit& unit : s.units)
          if (unit.settings.contains("mixed_precision") && unit.settings["mixed_precision"].is_object())
            unit.settings["mixed_precision"].erase(key);
      });
    for (std::size_t i = 0; i < sketch_.units.size(); ++i)
      for (const auto& item : sketch_.units[i].settings.items())
        with([&](Sketch& s) { s.units[i].settings.erase(item.key()); });
  }

  void micro_batches() {
    for (std::size_t i = 0; i < sketch_.iterations.size(); ++i) {
      with([&](Sketch& s) { s.iterations[i].clip = Clip::none; });
      with([&](Sketch& s) { s.iterations[i].unscale = false; });
      with([&](Sketch& s) { s.iterations[i].overflow.clear(); });
      with([&](Sketch& s) { s.iterations[i].late = false; });
      with([&](Sketch& s) { s.iterations[i].step = false; });
      with([&](Sketch& s) { s.iterations[i].zero_grad = ZeroGrad::none; });
      for (std::size_t k = 0; k < sketch_.iterations[i].micro_batches.size(); ++k) {
        for (bool MicroBatch::*flag : {&MicroBatch::sync, &MicroBatch::reshard_after_backward,
                                       &MicroBatch::last_backward, &MicroBatch::all_reduce})
          with([&](Sketch& s) { s.iterations[i].micro_batches[k].*flag = true; });
        with([&](Sketch& s) { s.iterations[i].micro_batches[k].uses = Uses::both; });
        for (bool MicroBatch::*flag : {&MicroBatch::input_gradient, &MicroBatch::looked_at, &MicroBatch::eval,
                                       &MicroBatch::loud, &MicroBatch::nested})
          with([&](Sketch& s) { s.iterations[i].micro_batches[k].*flag = false; });
      }
    }
    with([](Sketch& s) { s.lr = 1; });
  }

  void plainer_blocks() {
    for (int i = 0; i < static_cast<int>(sketch_.blocks.size()); ++i) {
      if (sketch_.blocks[i].kind != BlockKind::linear) {
        Sketch plain = with_plain_block(sketch_, i);
        plain.blocks[i].width = width_before(sketch_, static_cast<std::size_t>(i) + 1);
        add(std::move(plain));
      }
      with([&](Sketch& s) { s.blocks[i].bias = false; });
      with([&](Sketch& s) { s.blocks[i].recompute = false; });
      with([&](Sketch& s) { s.blocks[i].odd = false; });
      with([&](Sketch& s) { s.blocks[i].scalar = false; });
      with([&](Sketch& s) {
        if (s.blocks[i].kind != BlockKind::nested || !s.blocks[i].relu) return;
        s.blocks[i].relu = false;
      });
    }
  }

  // To one, to half, one less.
  template <typename Field>
  void size(Field field) {
    const int now = *field(const_cast<Sketch&>(sketch_));
    std::set<int> tried;
    for (int less : {1, now / 2, now - 1}) {
      if (less < 1 || less >= now || !tried.insert(less).second) continue;
      with([&](Sketch& s) { *field(s) = less; });
    }
  }

  void sizes() {
    size([](Sketch& s) { return &s.in; });
    size([](Sketch& s) { return &s.rows; });
    for (std::size_t i = 0; i < sketch_.blocks.size(); ++i) {
      const BlockKind kind = sketch_.blocks[i].kind;
      if (kind == BlockKind::linear || kind == BlockKind::nested || kind == BlockKind::spare)
        size([&](Sketch& s) { return &s.blocks[i].width; });
      if (kind == BlockKind::nested) size([&](Sketch& s) { return &s.blocks[i].middle; });
    }
  }

  const Sketch& sketch_;
  std::vector<Sketch> found_;
};

}  // namespace

std::vector<Sketch> smaller_sketches(const Sketch& sketch) {
  return Smaller(sketch).all();
}

Sketch shrink(Sketch failing, const std::function<bool(Sketch&)>& still_fails, int most) {
  for (bool found = true; found;) {
    found = false;
    for (Sketch& candidate : smaller_sketches(failing)) {
      if (most-- <= 0) return failing;
      if (!still_fails(candidate)) continue;
      failing = std::move(candidate);
      found = true;
      break;
    }
  }
  return failing;
}

}  // namespace fsdp_cts::generate
