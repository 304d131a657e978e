#include "harness/protocol/sha256.hpp"

#include <openssl/evp.h>

#include <array>
#include <stdexcept>

namespace fsdp_cts {
namespace {

void require(int ok) {
  if (ok != 1) throw std::runtime_error("libcrypto refuses SHA-256");
}

}  // namespace

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  require(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr));
}
Sha256::~Sha256() = default;

void Sha256::update(std::string_view bytes) {
  require(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()));
}

std::string Sha256::hex() const {
  State copy;
  require(EVP_MD_CTX_copy_ex(copy.context, state_->context));
  std::array<unsigned char, 32> digest{};
  require(EVP_DigestFinal_ex(copy.context, digest.data(), nullptr));
  std::string text;
  for (unsigned char byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string sha256(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

}  // namespace fsdp_cts
