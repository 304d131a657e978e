#include "harness/protocol/frame.hpp"

#include <algorithm>

namespace fsdp_cts {
namespace {

constexpr std::size_t header_bytes = 4;

std::size_t body_length(std::string_view header) {
  std::size_t length = 0;
  for (std::size_t i = header_bytes; i-- > 0;) length = length << 8 | static_cast<unsigned char>(header[i]);
  return length;
}

// Some bytes of what was received, printable, for an error message.
std::string excerpt(std::string_view body) {
  constexpr std::size_t shown = 60;
  std::string text;
  for (char c : body.substr(0, shown)) text += c >= ' ' && c <= '~' ? c : '?';
  return body.size() > shown ? text + "…" : text;
}

void check_length(std::size_t length) {
  if (length > max_frame_bytes) {
    throw FrameError("oversize_frame", "a frame announces " + std::to_string(length) + " bytes; at most " +
                                           std::to_string(max_frame_bytes) +
                                           " are allowed. Tensors travel in files, not in frames");
  }
  if (length == 0) throw FrameError("empty_frame", "a frame announces 0 bytes; one JSON object was expected");
}

}  // namespace

bool nested_too_deeply(std::string_view body) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > max_json_depth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

std::string encode_frame(const Json& message) {
  std::string body;
  try {
    body = message.dump();
  } catch (const Json::type_error& e) {
    throw FrameError("malformed_json",
                     std::string("the message holds a string that is not UTF-8: ") + e.what());
  }
  check_length(body.size());
  std::string frame(header_bytes, '\0');
  for (std::size_t i = 0; i < header_bytes; ++i) frame[i] = static_cast<char>(body.size() >> (8 * i) & 0xff);
  return frame += body;
}

Json parse_frame(std::string_view body) {
  if (nested_too_deeply(body)) {
    throw FrameError("too_deep", "JSON nested deeper than " + std::to_string(max_json_depth) +
                                     " levels: " + excerpt(body));
  }
  Json message;
  try {
    message = Json::parse(body);
  } catch (const Json::exception& e) {  // numbers out of range are none of the parser's own errors
    throw FrameError("malformed_json", "a frame of " + std::to_string(body.size()) + " bytes is not JSON (" +
                                           e.what() + "); it begins with: " + excerpt(body));
  }
  if (!message.is_object()) {
    throw FrameError("not_an_object", "a frame holds a JSON " + std::string(message.type_name()) +
                                          " where an object was expected: " + excerpt(body));
  }
  const auto type = message.find("type");
  if (type == message.end() || !type->is_string()) {
    throw FrameError("no_type", "a message has no string \"type\": " + excerpt(body));
  }
  return message;
}

void FrameDecoder::feed(std::string_view bytes) {
  buffer_.erase(0, consumed_);
  consumed_ = 0;
  buffer_.append(bytes);
}

std::size_t FrameDecoder::wanted() const {
  const std::size_t available = buffer_.size() - consumed_;
  if (available < header_bytes) return header_bytes - available;
  const std::size_t whole = header_bytes + body_length(std::string_view(buffer_).substr(consumed_));
  return std::max<std::size_t>(whole - std::min(whole, available), 1);
}

std::optional<Json> FrameDecoder::next() {
  const std::string_view rest = std::string_view(buffer_).substr(consumed_);
  if (rest.size() < header_bytes) return std::nullopt;
  const std::size_t length = body_length(rest);
  check_length(length);  // before waiting for the body: nobody makes us hold 4 GiB
  if (rest.size() < header_bytes + length) return std::nullopt;
  consumed_ += header_bytes + length;
  return parse_frame(rest.substr(header_bytes, length));
}

}  // namespace fsdp_cts
