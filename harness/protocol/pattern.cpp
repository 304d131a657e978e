#include "harness/protocol/pattern.hpp"

#include <re2/re2.h>

#include <stdexcept>

namespace fsdp_cts {

Pattern::Pattern(const std::string& text) {
  auto expression = std::make_shared<re2::RE2>(text, re2::RE2::Quiet);
  if (!expression->ok()) throw std::invalid_argument(expression->error());
  expression_ = std::move(expression);
}

bool Pattern::matches(std::string_view whole) const {
  return re2::RE2::FullMatch({whole.data(), whole.size()}, *expression_);
}

bool Pattern::found_in(std::string_view text) const {
  return re2::RE2::PartialMatch({text.data(), text.size()}, *expression_);
}

}  // namespace fsdp_cts
