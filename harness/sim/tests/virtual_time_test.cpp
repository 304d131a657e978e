// On machine "slow", whose figures are round: 5 us per launch on the host, 2 us on the stream, 100 bytes and 1000
// operations per nanosecond, 5 bytes over the link; rings 10 us, 20 us a step, 1 byte.
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "harness/sim/streams.hpp"
#include "harness/sim/tests/two_streams.hpp"

namespace fsdp_cts::sim {
namespace {

using std::chrono::nanoseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using namespace std::chrono_literals;

constexpr nanoseconds on_host = 5us;
constexpr nanoseconds on_stream = 2us;

class VirtualTime : public TwoStreams {
 protected:
  VirtualTime() {
    set_machine("slow");
    guard().synchronizeDevice(0);
    mark();
  }
  ~VirtualTime() override { set_machine(""); }

  // An operator of the program's own: 5 us on the host, 2 us and 10 us on the current stream.
  void work() {
    launch("work", {megabyte_}, {}, [] {});
  }
  static constexpr nanoseconds of_work = on_stream + 10us;
  nanoseconds now() { return since_mark().duration; }

  at::Tensor megabyte_ = at::empty({1000000}, at::TensorOptions(device_zero).dtype(at::kByte));
};

TEST_F(VirtualTime, AnOperatorTakesItsLaunchesAndItsBytes) {
  work();
  EXPECT_EQ(now(), on_host + of_work);
}

TEST_F(VirtualTime, TheHostRunsAhead) {
  for (int i = 0; i < 3; ++i) work();
  EXPECT_EQ(now(), on_host + 3 * of_work);
}

TEST_F(VirtualTime, AStreamWaitsForTheHost) {
  const at::Tensor small = at::empty({4}, device_zero);
  for (int i = 0; i < 3; ++i) launch("small", {small}, {}, [] {});
  EXPECT_EQ(now(), 3 * on_host + on_stream + 1ns);
}

TEST_F(VirtualTime, StreamsRunSideBySide) {
  work();
  on(side_, [&] { work(); });
  EXPECT_EQ(now(), 2 * on_host + of_work);
}

TEST_F(VirtualTime, AWaitMakesThemRunOneAfterTheOther) {
  work();
  wait(side_, main_);
  on(side_, [&] { work(); });
  EXPECT_EQ(now(), on_host + 2 * of_work);
}

TEST_F(VirtualTime, AnEventHasTheTimeAtWhichItWasRecorded) {
  c10::Event event(device_type);
  event.record(main_);
  work();
  event.block(side_);
  on(side_, [&] { work(); });
  EXPECT_EQ(now(), 2 * on_host + of_work);
}

TEST_F(VirtualTime, TheHostWaits) {
  work();
  guard().synchronizeStream(main_);
  work();
  EXPECT_EQ(now(), 2 * (on_host + of_work));
}

TEST_F(VirtualTime, AMarkOrdersNothing) {
  at::Tensor x = at::ones({64}, device_zero);
  wait(side_, main_);
  x.add_(1);
  mark();
  on(side_, [&] { x.add_(1); });
  EXPECT_THAT(found(), ElementsAre("stream_race: aten::add then aten::add"));
}

TEST_F(VirtualTime, OfPyTorchsOperatorsBytesAndOperationsCount) {
  const at::TensorOptions floats(device_zero);
  const at::Tensor a = at::zeros({100, 200}, floats), b = at::zeros({200, 300}, floats);
  mark();
  at::mm(a, b);  // 12,000,000 operations; its 560,000 bytes take 5.6 us
  EXPECT_EQ(now(), on_host + on_stream + 12us);
  const at::Tensor half = at::zeros({1000, 1000}, floats.dtype(at::kBFloat16));
  mark();
  half.add_(half);
  EXPECT_EQ(now(), on_host + on_stream + 60us);
  mark();
  half.t().view({1000, 1000});  // no work, and no launch
  EXPECT_EQ(now(), 0ns);
}

TEST_F(VirtualTime, AnExpandedTensorHasTheBytesThatItHas) {
  const at::Tensor one = at::zeros({1, 1}, device_zero).expand({1000, 1000});
  mark();
  launch("look", {one}, {}, [] {});
  EXPECT_EQ(now(), on_host + on_stream + 1ns);
}

TEST_F(VirtualTime, ConvolutionsAndAttentionAreProducts) {
  const at::TensorOptions floats(device_zero);
  const at::Tensor image = at::zeros({1, 8, 34, 34}, floats), kernel = at::zeros({16, 8, 3, 3}, floats);
  mark();
  at::conv2d(image, kernel);  // 32 * 32 * 16 elements, each 2 * 8 * 3 * 3 operations
  EXPECT_EQ(now(), on_host + on_stream + 2360ns);
  const at::Tensor query = at::zeros({2, 4, 64, 32}, floats);
  mark();
  at::_scaled_dot_product_flash_attention_for_cpu(query, query, query);  // 2 products of 2 * 4 * 64 * 64 * 32
  EXPECT_EQ(now(), on_host + on_stream + 4195ns);
}

TEST_F(VirtualTime, CopiesGoOverTheLink) {
  const at::Tensor host = at::empty({1000000}, at::kByte).pin_memory();
  mark();
  megabyte_.copy_(host, /*non_blocking=*/true);
  work();
  EXPECT_EQ(now(), on_host + on_stream + 200us + of_work);
  EXPECT_EQ(since_mark().compute, of_work);
}

TEST_F(VirtualTime, WhoOnlyLooksTakesNoTime) {
  work();
  {
    const Unobserved looking;
    on(side_, [&] { megabyte_.cpu(); });
    wait(side_, main_);
    guard().synchronizeStream(main_);
    delay_stream(main_, 1ms);
  }
  on(side_, [&] { work(); });
  EXPECT_EQ(now(), 2 * on_host + of_work);
}

TEST_F(VirtualTime, ADelayHoldsItsStreamAlone) {
  delay_stream(side_, 1ms);
  work();
  EXPECT_EQ(now(), 1ms);
  on(side_, [&] { work(); });
  EXPECT_EQ(now(), 1ms + on_host + of_work);
}

TEST_F(VirtualTime, EventsTellVirtualTime) {
  c10::Event begin(device_type, c10::EventFlag::BACKEND_DEFAULT),
      end(device_type, c10::EventFlag::BACKEND_DEFAULT);
  work();
  begin.record(main_);
  work();
  end.record(main_);
  EXPECT_DOUBLE_EQ(begin.elapsedTime(end), 0.012);
}

// As rank 0 of 4 sees it, when the last rank comes at `latest`.
Collective of_four(Pattern pattern, nanoseconds latest = {}) {
  return {pattern, 4, [latest](std::int64_t mine) { return std::max<std::int64_t>(mine, latest.count()); }};
}

TEST_F(VirtualTime, CollectivesFollowTheRing) {
  const std::pair<Pattern, nanoseconds> expected[] = {{Pattern::all_gather, 10us + 3 * 20us + 750us},
                                                      {Pattern::all_reduce, 10us + 6 * 20us + 1500us},
                                                      {Pattern::broadcast, 10us + 3 * 20us + 1000us}};
  for (const auto& [pattern, duration] : expected) {
    mark();
    launch_collective("c", {}, {megabyte_}, of_four(pattern), [] {});
    EXPECT_EQ(now(), on_host + duration);
    EXPECT_EQ(since_mark().communication, duration);
  }
}

TEST_F(VirtualTime, ACollectiveBeginsWhenTheLastRankHasCome) {
  work();
  const nanoseconds mine(Checker::instance().ready(timeline_of(main_), on_host.count()));
  launch_collective("c", {}, {megabyte_}, of_four(Pattern::all_gather, mine + 1ms), [] {});
  EXPECT_EQ(now(), on_host + of_work + 1ms + 820us);  // `mine` is behind the work
  EXPECT_EQ(since_mark().communication, 820us);
}

TEST_F(VirtualTime, OneRankHasNobodyToAsk) {
  launch_collective("c", {}, {megabyte_}, {Pattern::all_gather, 1, nullptr}, [] {});
  EXPECT_EQ(now(), on_host + of_work);
}

TEST_F(VirtualTime, WithoutAMachineNobodyIsAsked) {
  set_machine("");
  launch_collective("c", {}, {megabyte_}, {Pattern::all_gather, 4, nullptr}, [] {});
  work();
  delay_stream(main_, 1ms);
  set_machine("slow");
  EXPECT_EQ(now(), 0ns);
}

TEST_F(VirtualTime, CommunicationIsExposedWhereNothingIsComputed) {
  on(side_, [&] { launch_collective("c", {}, {megabyte_}, of_four(Pattern::all_gather), [] {}); });
  work();
  work();
  const StepNumbers numbers = since_mark();
  EXPECT_EQ(numbers.duration, on_host + 820us);
  EXPECT_EQ(numbers.compute, 2 * of_work);
  EXPECT_EQ(numbers.communication, 820us);
  EXPECT_EQ(numbers.exposed_communication, 820us - 2 * of_work);
}

TEST_F(VirtualTime, PeaksOfMemoryAreSinceTheMark) {
  const auto before = since_mark().peak_memory.at(0);
  { const at::Tensor large = at::empty({4000000}, at::TensorOptions(device_zero).dtype(at::kByte)); }
  mark();
  { const at::Tensor small = at::empty({512000}, at::TensorOptions(device_zero).dtype(at::kByte)); }
  EXPECT_EQ(since_mark().peak_memory.at(0), before + 512000);
}

TEST_F(VirtualTime, TwiceTheSame) {
  std::vector<StepNumbers> runs;
  for (int run = 0; run < 2; ++run) {
    mark();
    on(side_, [&] { launch_collective("c", {}, {megabyte_}, of_four(Pattern::all_gather), [] {}); });
    at::ones({64, 64}, device_zero).mm(at::ones({64, 64}, device_zero)).sum().item();
    if (run == 0) std::this_thread::sleep_for(20ms);
    wait(main_, side_);
    work();
    runs.push_back(since_mark());
  }
  EXPECT_EQ(runs[0].duration, runs[1].duration);
  EXPECT_EQ(runs[0].compute, runs[1].compute);
  EXPECT_EQ(runs[0].exposed_communication, runs[1].exposed_communication);
}

TEST_F(VirtualTime, AnUnknownMachineIsToldTheTable) {
  EXPECT_THAT([] { set_machine("h100"); },
              ::testing::ThrowsMessage<c10::Error>(::testing::AllOf(
                  HasSubstr("no machine 'h100'; there are h100-nvlink (H100 SXM"), HasSubstr("slow"))));
  EXPECT_EQ(machine(), "slow");
}

TEST_F(VirtualTime, NumbersNeedAMachine) {
  set_machine("");
  EXPECT_THAT([] { mark(); },
              ::testing::ThrowsMessage<c10::Error>(HasSubstr("FSDP_SIM_MACHINE; there are h100")));
  EXPECT_THAT([] { begin_trace("/nowhere"); },
              ::testing::ThrowsMessage<c10::Error>(HasSubstr("FSDP_SIM_MACHINE")));
}

TEST_F(VirtualTime, ATraceHasLanesSpansAndFindings) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "traces";
  std::filesystem::remove_all(folder);
  begin_trace(folder / "case" / "rank0.json");
  name_stream(side_, "the \"side\" stream");
  at::Tensor x = at::ones({64}, device_zero);
  work();
  on(side_, [&] { x.add_(1); });
  on(side_, [&] { work(); });
  end_trace();
  std::ifstream stream(folder / "case" / "rank0.json");
  const auto trace = nlohmann::json::parse(stream);
  std::vector<std::string> lanes, spans, instants;
  double begin_of_add = -1, race = -2;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("name") == "thread_name") lanes.push_back(event.at("args").at("name"));
    if (event.at("ph") == "X") spans.push_back(event.at("name"));
    if (event.at("name") == "aten::add") begin_of_add = event.at("ts");
    if (event.at("ph") != "i") continue;
    race = event.at("ts");
    instants.push_back(event.at("args").at("text"));
  }
  EXPECT_THAT(lanes, UnorderedElementsAre("default stream of sim:0", "the \"side\" stream"));
  EXPECT_THAT(spans, ElementsAre("aten::fill_", "work", "aten::add", "work"));
  EXPECT_THAT(instants, ElementsAre(HasSubstr("nothing orders the two")));
  EXPECT_EQ(race, begin_of_add);
  EXPECT_EQ(trace.at("otherData").at("machine"), "slow");
  EXPECT_THAT(std::vector(std::filesystem::directory_iterator(folder / "case"), {}), ::testing::SizeIs(1));
}

TEST_F(VirtualTime, PartsOfATraceBeginAtZero) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "parts";
  std::filesystem::remove_all(folder);
  ASSERT_EQ(setenv("FSDP_SIM_TRACE", folder.c_str(), 1), 0);
  std::vector<std::string> written;
  for (const char* part : {"one", "one/two"}) {
    begin_trace_of(part);
    work();
    write_trace();
    work();
    end_trace();
    work();  // belongs to none
    std::ifstream stream(folder / part / "rank0.json");
    written.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  unsetenv("FSDP_SIM_TRACE");
  EXPECT_EQ(written[0], written[1]);
  EXPECT_THAT(written[0], HasSubstr(R"("name":"work","cat":"compute","ts":5.000,"dur":12.000)"));
  EXPECT_THAT(written[0], HasSubstr(R"("name":"work","cat":"compute","ts":17.000,"dur":12.000)"));
  begin_trace_of("three");
  EXPECT_FALSE(std::filesystem::exists(folder / "three"));
}

}  // namespace
}  // namespace fsdp_cts::sim
