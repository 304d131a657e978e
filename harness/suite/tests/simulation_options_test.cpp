// What the options of the simulated accelerator mean to its ranks, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/suite/testees.hpp"

namespace fsdp_cts {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TesteeChoice simulated() {
  TesteeChoice choice;
  choice.spec = "some program";
  choice.device = "sim";
  return choice;
}

TEST(SimulationOptions, Sizes) {
  EXPECT_EQ(bytes_in("1"), 1u);
  EXPECT_EQ(bytes_in("512B"), 512u);
  EXPECT_EQ(bytes_in("64MB"), 64'000'000u);
  EXPECT_EQ(bytes_in("64 MiB"), 67'108'864u);
  EXPECT_EQ(bytes_in("2GiB"), 2'147'483'648u);
  for (const char* text : {"", "0", "0MB", "-1", "MB", "64mb", "64 M B", "6.4MB", "64MB ", "99999999999GB",
                           "99999999999999999999999"})
    EXPECT_EQ(bytes_in(text), std::nullopt) << text;
}

TEST(SimulationOptions, ReachTheRanksAsEnvironment) {
  TesteeChoice choice = simulated();
  choice.sim_machine = "slow";
  choice.sim_trace = "traces";
  choice.sim_memory = "64MB";
  EXPECT_NO_THROW(settle(choice));
  const auto environment = testee_from(choice, Suite{}).environment;
  EXPECT_EQ(environment.at("FSDP_SIM_MACHINE"), "slow");
  EXPECT_EQ(environment.at("FSDP_SIM_TRACE"), (std::filesystem::current_path() / "traces").string());
  EXPECT_EQ(environment.at("FSDP_SIM_MEMORY"), "64000000");
  EXPECT_TRUE(testee_from(simulated(), Suite{}).environment.empty());
}

TEST(SimulationOptions, NeedTheDevice) {
  for (auto option : {&TesteeChoice::sim_machine, &TesteeChoice::sim_trace, &TesteeChoice::sim_memory}) {
    TesteeChoice choice = simulated();
    choice.device = "cuda";
    choice.*option = "slow";
    EXPECT_THAT([&] { settle(choice); }, ThrowsMessage<UsageError>(HasSubstr("needs --device sim")));
  }
}

TEST(SimulationOptions, WhatIsNotUnderstood) {
  TesteeChoice unknown = simulated(), timeless = simulated(), nothing = simulated();
  unknown.sim_machine = "h100";
  timeless.sim_trace = "traces";
  nothing.sim_memory = "0MB";
  EXPECT_THAT([&] { settle(unknown); },
              ThrowsMessage<UsageError>(HasSubstr("no machine 'h100'; there are h100-nvlink (")));
  EXPECT_THAT([&] { settle(timeless); }, ThrowsMessage<UsageError>(HasSubstr("needs --sim-machine")));
  EXPECT_THAT([&] { settle(nothing); }, ThrowsMessage<UsageError>(HasSubstr("not '0MB'")));
}

}  // namespace
}  // namespace fsdp_cts
