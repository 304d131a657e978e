#pragma once
// Runs a test body as several ranks: one forked process each, on this host. The parent must not
// have used LibTorch before (its thread pools do not survive a fork), so everything a test does with tensors
// happens in the body.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "fsdp/comm/mesh.hpp"
#include "fsdp/comm/recording.hpp"
#include "fsdp/comm/rendezvous.hpp"

namespace fsdp::testing {

struct Rank {
  int64_t rank;
  int64_t world;
  std::shared_ptr<Communicator> plain;     ///< not recorded
  std::shared_ptr<Communicator> recorded;  ///< into `trace`
  std::shared_ptr<Trace> trace;
  Rendezvous rendezvous;  ///< where they met; for another meeting give it another file

  DeviceMesh mesh() const { return DeviceMesh(recorded); }
};

using MakeCommunicator = std::shared_ptr<Communicator>(const Rendezvous&);

/// Fails the current test if a rank fails an expectation, throws, dies, or is not done after a minute. Over
/// Gloo, or the backend that `make` makes.
void run_ranks(int64_t world, const std::function<void(const Rank&)>& body);
void run_ranks(MakeCommunicator* make, int64_t world, const std::function<void(const Rank&)>& body);

/// The message of the exception of type E that `act` throws; fails the test and returns "" if it throws none.
template <class E, class Act>
std::string message_of(Act act) {
  try {
    act();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "expected another type of exception, got: " << error.what();
    return {};
  }
  ADD_FAILURE() << "expected an exception";
  return {};
}

}  // namespace fsdp::testing
