// What a program that links the stub answers to a request for NCCL. Built everywhere, also where NCCL exists.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsdp/comm/nccl.hpp"
#include "fsdp/errors.hpp"
#include "tests/ranks.hpp"

namespace fsdp::testing {
namespace {

TEST(NoNccl, SaysWhatToLink) {
  EXPECT_FALSE(has_nccl());
  EXPECT_THAT(message_of<RuntimeError>([] { make_nccl_communicator({}, 0); }),
              AllOf(::testing::HasSubstr("this program has none"), ::testing::HasSubstr("link fsdp_cuda")));
}

}  // namespace
}  // namespace fsdp::testing
