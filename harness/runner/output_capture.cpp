#include "harness/runner/output_capture.hpp"

#include <algorithm>

namespace fsdp_cts {
namespace {

// Length of the well-formed UTF-8 sequence at the front (Unicode, table 3-7), 0 if there is none.
std::size_t sequence_length(std::string_view s) {
  const auto byte = [&](std::size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0u; };
  const auto follows = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xbf) {
    return byte(i) >= low && byte(i) <= high;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return follows(1) ? 2 : 0;
  if (lead >= 0xe0 && lead <= 0xef) {
    const bool second = follows(1, lead == 0xe0 ? 0xa0 : 0x80, lead == 0xed ? 0x9f : 0xbf);
    return second && follows(2) ? 3 : 0;
  }
  if (lead >= 0xf0 && lead <= 0xf4) {
    const bool second = follows(1, lead == 0xf0 ? 0x90 : 0x80, lead == 0xf4 ? 0x8f : 0xbf);
    return second && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string printable(std::string_view bytes) {
  static constexpr char digits[] = "0123456789ABCDEF";
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const auto first = static_cast<unsigned char>(bytes[0]);
    const std::size_t length = sequence_length(bytes);
    const bool control = (first < 0x20 && first != '\n' && first != '\t') || first == 0x7f;
    if (length == 0 || control) {
      text.append({'\\', 'x', digits[first >> 4], digits[first & 15]});
      bytes.remove_prefix(1);
    } else {
      text.append(bytes.substr(0, length));
      bytes.remove_prefix(length);
    }
  }
  return text;
}

void OutputCapture::append(std::string_view bytes) {
  total_ += bytes.size();
  const std::size_t to_head = std::min(bytes.size(), head_limit_ - head_.size());
  head_.append(bytes.substr(0, to_head));
  bytes.remove_prefix(to_head);
  if (bytes.size() > tail_limit_) {
    tail_.clear();
    bytes.remove_prefix(bytes.size() - tail_limit_);
  }
  tail_.append(bytes);
  if (tail_.size() > 2 * tail_limit_) tail_.erase(0, tail_.size() - tail_limit_);
}

void OutputCapture::clear() {
  total_ = 0;
  head_.clear();
  tail_.clear();
}

std::string OutputCapture::text() const {
  const std::string_view tail =
      std::string_view(tail_).substr(tail_.size() - std::min(tail_.size(), tail_limit_));
  const std::uint64_t left_out = total_ - head_.size() - tail.size();
  // Together where nothing lies between: the limit of the head may fall into a character.
  if (left_out == 0) return printable(head_ + std::string(tail));
  return printable(head_) + "\n[… " + std::to_string(left_out) + " bytes left out …]\n" + printable(tail);
}

}  // namespace fsdp_cts
