// One message as the runner judges it before it looks at anything in it.
#include "harness/protocol/messages.hpp"

#include "harness/fuzz/targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fsdp_cts;
  Json message;
  try {
    message = parse_frame(fuzz::text_of(data, size));
  } catch (const FrameError&) {
    return 0;
  }
  try {
    check_testee_message(message);
    if (message["type"] == "observation") tensors_named_by(message["entries"]);
  } catch (const MessageError&) {
  }
  try {
    check_runner_message(message);
  } catch (const MessageError&) {
  }
  return 0;
}
