// What is drawn is valid and the same each time; what is smaller is valid too, and shrinking ends where it
// must.
#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "harness/generate/draw.hpp"
#include "harness/generate/fit.hpp"
#include "harness/generate/shrink.hpp"

namespace fsdp_cts::generate {
namespace {

constexpr int many = 300;

TEST(Draw, IsLegalAndLoads) {
  for (int index = 0; index < many; ++index) {
    const Sketch sketch = draw_sketch(1, index, 0);
    EXPECT_EQ(why_illegal(sketch), std::nullopt);
    const Drawn drawn = written({1, index}, sketch, "");  // throws for a mistake
    EXPECT_EQ(drawn.whole().world, sketch.world);
    EXPECT_EQ(drawn.whole().lane, Lane::exact);
    EXPECT_EQ(drawn.whole().seed_cases, 0);
  }
}

TEST(Draw, DependsOnItsNumbersAlone) {
  std::set<std::string> texts;
  for (int index = 0; index < 40; ++index) {
    const std::string text = scenario_text(draw_sketch(7, index, 0), {7, index}, "w");
    EXPECT_EQ(text, scenario_text(draw_sketch(7, index, 0), {7, index}, "w"));
    EXPECT_TRUE(texts.insert(text).second);
  }
  EXPECT_FALSE(draw_sketch(7, 0, 0) == draw_sketch(8, 0, 0));
  EXPECT_FALSE(draw_sketch(7, 0, 0) == draw_sketch(7, 0, 1));
}

// Whatever is in the table of draws comes up, or the table is wrong.
TEST(Draw, ComesUponEverything) {
  std::set<std::string> apis;
  std::set<int> worlds, kinds, asides;
  bool mesh = false, list = false, frozen = false, ignored = false, policy = false, low = false, clip = false;
  std::set<Uses> uses;
  bool whole_unit_frozen = false, loaded_over = false, host_inputs = false;
  bool odd = false, scalar = false, exact_classes = false, scope_on_host = false, same_optimizer = false;
  bool nested = false, late = false, part = false, over = false, order_checked = false;
  bool loud = false, looked_at = false, eval_in_full = false, gradient_in_scope = false;
  std::set<std::string> dtypes;
  bool cast_late = false, halves = false, decay = false, hook = false, begun = false, second = false;
  for (int index = 0; index < 5 * many; ++index) {
    const Sketch sketch = draw_sketch(3, index, 0);
    dtypes.insert(sketch.dtype);
    order_checked = order_checked || sketch.order_checked;
    over = over || (sketch.resumed && !sketch.resumed->over.empty());
    host_inputs = host_inputs || sketch.host_inputs;
    whole_unit_frozen =
        whole_unit_frozen || std::any_of(sketch.units.begin(), sketch.units.end(), [&](const Unit& unit) {
          return unit.modules.size() == 1 && !sketch.frozen.empty() &&
                 sketch.frozen.front() == ParameterAt{unit.modules.front(), ""};
        });
    loaded_over = loaded_over || any_aside(sketch, [](const Aside& each) {
                    return each.kind == AsideKind::full_state && !each.at.name.empty();
                  });
    cast_late = cast_late || sketch.cast_late;
    halves = halves || !sketch.halves.empty();
    second = second || !sketch.second.empty();
    decay = decay || sketch.weight_decay != 0;
    apis.insert(sketch.api);
    worlds.insert(sketch.world);
    for (const Block& block : sketch.blocks) {
      kinds.insert(static_cast<int>(block.kind));
      odd = odd || block.odd;
      scalar = scalar || block.scalar;
    }
    const auto asks_for = [&](const char* option) {
      return any_aside(sketch, [&](const Aside& each) { return each.options.contains(option); });
    };
    part = part || asks_for("part");
    scope_on_host = scope_on_host || asks_for("offload_to_cpu");
    same_optimizer = same_optimizer || asks_for("same");
    for (const Iteration& iteration : sketch.iterations) {
      clip = clip || iteration.clip != Clip::none;
      late = late || iteration.late;
      for (const MicroBatch& each : iteration.micro_batches)
        for (const Aside& aside : each.before) {
          asides.insert(static_cast<int>(aside.kind));
          begun = begun || (aside.kind == AsideKind::unshard && aside.value);
        }
      for (const MicroBatch& each : iteration.micro_batches) {
        looked_at = looked_at || each.looked_at;
        nested = nested || each.nested;
        uses.insert(each.uses);
        loud = loud || each.loud;
        eval_in_full = eval_in_full || (each.eval && sketch.full_precision_in_eval);
      }
      for (const Aside& aside : iteration.before_step) asides.insert(static_cast<int>(aside.kind));
      for (const Aside& aside : iteration.before_step)
        gradient_in_scope = gradient_in_scope || (aside.kind == AsideKind::summon && aside.value);
    }
    for (const Unit& unit : sketch.units) {
      hook = hook || unit.hook != 0;
      list = list || unit.modules.size() > 1;
      low = low || unit.settings.contains("mixed_precision");
      exact_classes =
          exact_classes || unit.settings.dump().find("module_classes_to_ignore") != std::string::npos;
    }
    mesh = mesh || !sketch.mesh.empty();
    frozen = frozen || !sketch.frozen.empty();
    ignored = ignored || !sketch.ignored.empty();
    policy = policy || !sketch.auto_wrap.is_null();
  }
  EXPECT_THAT(apis, testing::ElementsAre("composable", "fsdp", "fully_shard"));
  EXPECT_THAT(worlds, testing::ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(kinds.size(), static_cast<std::size_t>(BlockKind::side) + 1);
  EXPECT_EQ(asides.size(), static_cast<std::size_t>(AsideKind::clip) + 1);
  EXPECT_TRUE(mesh && list && frozen && ignored && policy && low && clip);
  EXPECT_THAT(dtypes, testing::ElementsAre("bfloat16", "float16", "float32", "float64"));
  EXPECT_TRUE(cast_late && halves && decay && hook && begun && second);
  EXPECT_THAT(uses, testing::ElementsAre(Uses::both, Uses::main, Uses::side));
  EXPECT_TRUE(odd && scalar && exact_classes && scope_on_host && same_optimizer);
  EXPECT_TRUE(whole_unit_frozen && loaded_over && host_inputs);
  EXPECT_TRUE(nested && late && part && over && order_checked);
  EXPECT_TRUE(loud && looked_at && eval_in_full && gradient_in_scope);
}

TEST(Shrink, EverySmallerOneIsLegalAndLoads) {
  for (int index = 0; index < 25; ++index) {
    const Sketch sketch = draw_sketch(1, index, 0);
    for (const Sketch& smaller : smaller_sketches(sketch)) {
      EXPECT_EQ(why_illegal(smaller), std::nullopt);
      EXPECT_FALSE(smaller == sketch);
      written({1, index}, smaller, "");
    }
  }
}

TEST(Shrink, LeavesWhatTheFaultNeedsAndNothingElse) {
  const auto fails = [](const Sketch& sketch) {
    return sketch.world > 1 &&
           std::any_of(sketch.blocks.begin(), sketch.blocks.end(),
                       [](const Block& block) { return block.kind == BlockKind::nested && block.width > 2; });
  };
  int tried = 0;
  for (int index = 0; index < many; ++index) {
    const Sketch sketch = draw_sketch(1, index, 0);
    if (!fails(sketch)) continue;
    ++tried;
    const Sketch smallest = shrink(
        sketch, [&](Sketch& candidate) { return fails(candidate); }, 10'000);
    EXPECT_EQ(smallest.world, 2);
    ASSERT_EQ(smallest.blocks.size(), 1u);
    EXPECT_EQ(smallest.blocks[0].width, 3);
    EXPECT_EQ(smallest.blocks[0].middle, 1);
    EXPECT_FALSE(smallest.blocks[0].bias);
    EXPECT_EQ(smallest.in, 1);
    EXPECT_EQ(smallest.units.size(), 1u);
    ASSERT_EQ(smallest.iterations.size(), 1u);
    EXPECT_EQ(smallest.iterations[0].micro_batches.size(), 1u);
  }
  EXPECT_GT(tried, 20);
}

TEST(Shrink, StopsWhenItMay) {
  int tried = 0;
  shrink(
      draw_sketch(1, 0, 0),
      [&](Sketch&) {
        ++tried;
        return true;
      },
      5);
  EXPECT_LE(tried, 5);
}

TEST(Legal, RefusesWhatClausesForbid) {
  Sketch sketch;
  sketch.api = "fsdp";
  sketch.world = 2;
  sketch.blocks = {Block{}};
  sketch.blocks[0].bias = true;
  sketch.units.resize(1);
  sketch.units[0].modules = {ModuleAt{}};
  sketch.iterations.resize(1);
  sketch.iterations[0].micro_batches.resize(1);
  EXPECT_EQ(why_illegal(sketch), std::nullopt);
  sketch.frozen = {{{0, -1}, "bias"}};  // WR-5
  EXPECT_NE(why_illegal(sketch), std::nullopt);
  sketch.units[0].settings["use_orig_params"] = true;
  EXPECT_EQ(why_illegal(sketch), std::nullopt);
  sketch.frozen = {{{3, -1}, "bias"}};
  EXPECT_NE(why_illegal(sketch), std::nullopt);
  sketch.frozen.clear();
  sketch.iterations[0].micro_batches[0].sync = false;  // a gradient that no optimizer sees
  EXPECT_NE(why_illegal(sketch), std::nullopt);
}

}  // namespace
}  // namespace fsdp_cts::generate
