#include "harness/scenario/data/formula.hpp"

namespace fsdp_cts {

// FNV-1a over the label's bytes.
Stream::Stream(std::string_view label) : start_(0xCBF29CE484222325ull) {
  for (const char c : label) start_ = (start_ ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
}

// The output function of SplitMix64 (Steele, Lea, Flood 2014) at the counter's position.
std::uint32_t Stream::at(std::uint64_t i) const {
  std::uint64_t z = start_ + (i + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  z ^= z >> 31;
  return static_cast<std::uint32_t>(z >> 40);
}

double ordinary_value(std::uint32_t u, double scale) {
  return (static_cast<double>(u) - 0x1p23) / 0x1p23 * scale;
}

double dyadic_value(std::uint32_t u, std::int64_t levels, double unit) {
  return static_cast<double>(static_cast<std::int64_t>(u) % (2 * levels + 1) - levels) * unit;
}

std::int64_t integer_value(std::uint32_t u, std::int64_t modulo) {
  return static_cast<std::int64_t>(u) % modulo;
}

}  // namespace fsdp_cts
