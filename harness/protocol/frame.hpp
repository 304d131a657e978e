// The frames of the testee protocol (PROTOCOL.md §2): 4 bytes little-endian length, then that many bytes of
// UTF-8 JSON, one object. No sockets here: both ends share this, and a fuzzer can feed it bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace fsdp_cts {

using Json = nlohmann::ordered_json;

inline constexpr std::size_t max_frame_bytes = std::size_t{16} << 20;
// Deeper nesting than any message needs is refused before it costs memory.
inline constexpr int max_json_depth = 64;

// `code` is stable and distinct: "oversize_frame", "empty_frame", "malformed_json", "too_deep",
// "not_an_object", "no_type", "truncated_frame"; from Channel also "bad_address", "connect", "io".
class FrameError : public std::runtime_error {
 public:
  FrameError(std::string error_code, const std::string& what)
      : std::runtime_error(what), code(std::move(error_code)) {}
  const std::string code;
};

// Throws FrameError "oversize_frame" when the JSON is longer than max_frame_bytes, "malformed_json" when a
// string in it is not UTF-8.
std::string encode_frame(const Json& message);

// Deeper than max_json_depth. The library parses JSON of any depth; copying and printing it recurses.
bool nested_too_deeply(std::string_view json);

// The JSON of one frame, checked: an object with a string "type". Throws FrameError.
Json parse_frame(std::string_view body);

// Takes bytes as they come, gives messages as they are complete.
class FrameDecoder {
 public:
  void feed(std::string_view bytes);
  // The next complete message, or nothing yet. Throws FrameError; the stream is of no use after that.
  std::optional<Json> next();
  // Bytes of an unfinished frame are waiting: the stream must not end here.
  bool inside_frame() const { return buffer_.size() > consumed_; }
  // How many more bytes complete the current header or body; never 0.
  std::size_t wanted() const;

 private:
  std::string buffer_;
  std::size_t consumed_ = 0;
};

}  // namespace fsdp_cts
