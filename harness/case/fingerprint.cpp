#include <openssl/evp.h>

#include <array>
#include <nlohmann/json.hpp>

#include "harness/case/case.hpp"

namespace fsdp_cts {
namespace {

// Raised when make_data gives other values for the same data section.
constexpr int formula_version = 1;

std::string sha256_hex(const std::string& text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1)
    throw std::runtime_error("libcrypto refuses SHA-256");
  std::string hex;
  for (unsigned i = 0; i < size; ++i) {
    constexpr char digits[] = "0123456789abcdef";
    hex += digits[digest[i] >> 4];
    hex += digits[digest[i] & 15];
  }
  return hex;
}

}  // namespace

std::string fingerprint(const Case& a_case) {
  // Line numbers move with every comment; they change no answer.
  Json program = a_case.program;
  for (Json& step : program) step.erase("line");
  const Json answered = {{"formula", formula_version}, {"world", a_case.world}, {"models", a_case.models},
                         {"plans", a_case.plans},      {"program", program},    {"data", a_case.data},
                         {"switches", a_case.switches}};
  // Through the sorted form: the order in which somebody writes keys is no difference either.
  return sha256_hex(nlohmann::json(answered).dump());
}

}  // namespace fsdp_cts
