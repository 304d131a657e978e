// SHA-256, as lower-case hexadecimal: addresses of golden blobs, footers of reports.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace fsdp_cts {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  void update(std::string_view bytes);
  std::string hex() const;  // of everything so far; more may follow

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256(std::string_view bytes);

}  // namespace fsdp_cts
