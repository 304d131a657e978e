#include "harness/runner/exit_reason.hpp"

#include <gtest/gtest.h>
#include <signal.h>

namespace fsdp_cts {
namespace {

int exited(int code) {
  return code << 8;
}

TEST(ExitReason, SignalsHaveNames) {
  EXPECT_EQ(explain_exit(SIGSEGV, "", 0).code, "signal");
  EXPECT_EQ(explain_exit(SIGSEGV, "", 0).sentence, "was killed by signal 11 (SIGSEGV)");
  EXPECT_EQ(explain_exit(SIGKILL, "", 0).sentence, "was killed by signal 9 (SIGKILL)");
}

TEST(ExitReason, ExitCodesAreTold) {
  EXPECT_EQ(explain_exit(exited(0), "", 0).code, "exit");
  EXPECT_EQ(explain_exit(exited(3), "noise", 0).sentence, "ended with exit code 3");
}

TEST(ExitReason, LackOfMemoryIsTold) {
  EXPECT_EQ(explain_exit(SIGKILL, "", 1).code, "out_of_memory");
  EXPECT_EQ(
      explain_exit(SIGABRT, "terminate called after throwing an instance of 'std::bad_alloc'\n", 0).code,
      "out_of_memory");
  EXPECT_EQ(explain_exit(exited(1), "Traceback …\nMemoryError\n", 0).code, "out_of_memory");
  EXPECT_EQ(explain_exit(SIGSEGV, "", 1).code, "signal");  // the memory killer struck, but not this process
  EXPECT_EQ(explain_exit(SIGABRT, "assertion", 0).code, "signal");
  EXPECT_EQ(explain_exit(exited(0), "MemoryError handled", 0).code, "exit");
}

}  // namespace
}  // namespace fsdp_cts
