// The stream of frames that a rank sends: any bytes, arriving in any parts.
#include "harness/fuzz/targets.hpp"
#include "harness/protocol/frame.hpp"

namespace {

// How many frames come out before the end or the refusal.
std::size_t frames_in(std::string_view bytes, std::size_t cut) {
  fsdp_cts::FrameDecoder decoder;
  std::size_t frames = 0;
  try {
    for (const std::string_view part : {bytes.substr(0, cut), bytes.substr(cut)}) {
      decoder.feed(part);
      while (const auto message = decoder.next()) {
        ++frames;
        const std::string again = fsdp_cts::encode_frame(*message);
        fsdp_cts::fuzz::check(fsdp_cts::parse_frame(std::string_view(again).substr(4)) == *message);
      }
    }
  } catch (const fsdp_cts::FrameError&) {
  }
  return frames;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fsdp_cts::fuzz::text_of(data, size);
  const std::size_t whole = frames_in(bytes, bytes.size());
  if (size > 0) fsdp_cts::fuzz::check(frames_in(bytes, data[size - 1] % size) == whole);
  return 0;
}
