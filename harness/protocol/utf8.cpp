#include "harness/protocol/utf8.hpp"

#include <nlohmann/json.hpp>

namespace fsdp_cts {
namespace {

std::string with_replacements(std::string_view text) {
  using Json = nlohmann::json;
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const int more = lead < 0x80                   ? 0
                     : lead >= 0xC2 && lead < 0xE0 ? 1
                     : (lead & 0xF0) == 0xE0       ? 2
                     : lead >= 0xF0 && lead < 0xF5 ? 3
                                                   : -1;
    if (more < 0 || i + static_cast<std::size_t>(more) >= text.size()) return false;
    for (int k = 1; k <= more; ++k) {
      const auto next = static_cast<unsigned char>(text[i + static_cast<std::size_t>(k)]);
      if ((next & 0xC0) != 0x80) return false;
      // Overlong forms, surrogates and code points beyond U+10FFFF show in the second byte.
      if (k == 1 && ((lead == 0xE0 && next < 0xA0) || (lead == 0xED && next > 0x9F) ||
                     (lead == 0xF0 && next < 0x90) || (lead == 0xF4 && next > 0x8F)))
        return false;
    }
    i += static_cast<std::size_t>(more) + 1;
  }
  return true;
}

std::string shortened(std::string_view text, std::size_t limit) {
  if (!is_utf8(text)) return shortened(with_replacements(text), limit);
  if (text.size() <= limit) return std::string(text);
  // A byte 10xxxxxx goes on with a character.
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xc0) == 0x80) --limit;
  return std::string(text.substr(0, limit)) + "…";
}

}  // namespace fsdp_cts
