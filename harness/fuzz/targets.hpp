// What every fuzz target defines, as libFuzzer asks for it: one file per parser of foreign bytes. A target
// swallows the refusals that its parser promises; any other exception, a signal or `check` is a finding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace fsdp_cts::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// A property that holds for every input.
inline void check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace fsdp_cts::fuzz
