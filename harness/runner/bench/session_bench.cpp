// What the runner itself costs: cases in which the ranks do nothing.
//
//   runner_bench                      medians of all; on a quiet machine
//   runner_bench --benchmark_filter=Reused
//
// An iteration is one case, from Session::run to its return; fresh ranks are started and ended in it.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>

#include "harness/runner/session.hpp"

namespace fsdp_cts {
namespace {

Testee null_testee() {
  Testee testee;
  testee.name = "null_testee";
  testee.command = {FAULT_TESTEE, "--null"};
  return testee;
}

Case empty_case(int world) {
  Case a_case;
  a_case.id = "empty";
  a_case.world = world;
  a_case.switches = a_case.models = a_case.plans = Json::object();
  a_case.program = Json::array();
  a_case.data = {{"seed", 1},
                 {"parameters", {{"formula", "ordinary"}, {"scale", "fan_in"}, {"norms", "constant"}}},
                 {"inputs", Json::object()}};
  return a_case;
}

void run_once(Session& session, const Testee& testee, const Case& a_case, benchmark::State& state) {
  session.run({{&testee, &a_case, {}}}, [&](const Job&, CaseRun&& run) {
    if (!run.blame.empty()) state.SkipWithError(run.blame.c_str());
  });
}

void reused_ranks(benchmark::State& state) {
  const Testee testee = null_testee();
  const Case a_case = empty_case(static_cast<int>(state.range(0)));
  Session session({});
  run_once(session, testee, a_case, state);
  for (auto _ : state) run_once(session, testee, a_case, state);
  session.close();
}

void fresh_ranks(benchmark::State& state) {
  const Testee testee = null_testee();
  const Case a_case = empty_case(static_cast<int>(state.range(0)));
  Session session({});
  for (auto _ : state) {
    run_once(session, testee, a_case, state);
    session.close();
  }
}

void fresh_session(benchmark::State& state) {
  const Testee testee = null_testee();
  const Case a_case = empty_case(2);
  for (auto _ : state) {
    Session session({});
    run_once(session, testee, a_case, state);
    session.close();
  }
}

// Medians, because a rank that was sent to sleep in between is no property of the runner.
BENCHMARK(reused_ranks)
    ->Name("ReusedRanks")
    ->ArgName("world")
    ->Arg(1)
    ->Arg(2)
    ->Arg(4)
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond)
    ->Repetitions(9)
    ->ReportAggregatesOnly(true)
    ->MinTime(0.2);
BENCHMARK(fresh_ranks)
    ->Name("FreshRanks")
    ->ArgName("world")
    ->Arg(2)
    ->Arg(4)
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond)
    ->Repetitions(9)
    ->ReportAggregatesOnly(true)
    ->MinTime(0.2);
BENCHMARK(fresh_session)
    ->Name("FreshSession")
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond)
    ->Repetitions(9)
    ->ReportAggregatesOnly(true)
    ->MinTime(0.2);

}  // namespace
}  // namespace fsdp_cts

BENCHMARK_MAIN();
