// The counter-based formulas that every initial value and input comes from. conformance/data-formulas.md
// states them; a reader can compute any element with a pocket calculator and needs no random generator.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fsdp_cts {

// One stream of 24-bit numbers per tensor, by its label "<seed>/<kind>/<name>[@rank]".
class Stream {
 public:
  explicit Stream(std::string_view label);
  std::uint32_t at(std::uint64_t i) const;  // u_i, 0 <= u_i < 2^24

 private:
  std::uint64_t start_;
};

double ordinary_value(std::uint32_t u, double scale);                    // in [-scale, scale)
double dyadic_value(std::uint32_t u, std::int64_t levels, double unit);  // k * unit, k in [-levels, levels]
std::int64_t integer_value(std::uint32_t u, std::int64_t modulo);        // in [0, modulo)

}  // namespace fsdp_cts
