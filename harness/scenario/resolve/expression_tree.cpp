#include "harness/scenario/resolve/expression_tree.hpp"

#include <cctype>
#include <charconv>

namespace fsdp_cts {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) { advance(); }

  Expression parse() {
    Expression result = conditional();
    if (kind_ != Token::end) fail("unexpected '" + std::string(token_) + "'");
    return result;
  }

 private:
  enum class Token { end, number, string, name, symbol };

  [[noreturn]] void fail(const std::string& what) const {
    throw ExpressionError(what + " in expression '" + std::string(text_) + "'");
  }

  void advance() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    const std::size_t begin = at_;
    const auto take = [&](Token kind) {
      kind_ = kind;
      token_ = text_.substr(begin, at_ - begin);
    };
    if (at_ == text_.size()) return take(Token::end);
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (std::isdigit(c)) {
      const auto part_of_number = [&](char d) {
        const bool sign = (d == '+' || d == '-') && (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E');
        return std::isalnum(static_cast<unsigned char>(d)) || d == '.' || sign;
      };
      while (at_ < text_.size() && part_of_number(text_[at_])) ++at_;
      return take(Token::number);
    }
    if (std::isalpha(c) || c == '_') {
      while (at_ < text_.size() &&
             (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_'))
        ++at_;
      return take(Token::name);
    }
    if (c == '\'') {
      const std::size_t close = text_.find('\'', at_ + 1);
      if (close == std::string_view::npos) fail("a string is not closed");
      at_ = close + 1;
      return take(Token::string);
    }
    static constexpr std::string_view two_characters[] = {"||", "&&", "==", "!=", "<=", ">="};
    at_ += 1;
    for (const std::string_view symbol : two_characters)
      if (text_.substr(begin, 2) == symbol) at_ = begin + 2;
    take(Token::symbol);
    if (token_.size() == 1 && std::string_view("?:!<>+-*/%()[],").find(token_) == std::string_view::npos)
      fail("unexpected '" + std::string(token_) + "'");
  }

  bool is(std::string_view symbol) const {
    return (kind_ == Token::symbol || kind_ == Token::name) && token_ == symbol;
  }

  bool accept(std::string_view symbol) {
    if (!is(symbol)) return false;
    advance();
    return true;
  }

  void expect(std::string_view symbol) {
    if (!accept(symbol))
      fail("expected '" + std::string(symbol) + "'" +
           (kind_ == Token::end ? " at the end" : " before '" + std::string(token_) + "'"));
  }

  Expression conditional() {
    Expression condition = binary(0);
    if (!accept("?")) return condition;
    Expression result{Expression::Kind::conditional, "?", {}, {}};
    result.parts.push_back(std::move(condition));
    result.parts.push_back(conditional());
    expect(":");
    result.parts.push_back(conditional());
    return result;
  }

  // Loosest binding first; all of them associate to the left.
  Expression binary(std::size_t level) {
    static const std::vector<std::vector<std::string_view>> levels = {
        {"||"}, {"&&"}, {"==", "!=", "<", "<=", ">", ">=", "in"}, {"+", "-"}, {"*", "/", "%"}};
    if (level == levels.size()) return unary();
    Expression left = binary(level + 1);
    for (;;) {
      std::string_view found;
      for (const std::string_view symbol : levels[level])
        if (is(symbol)) found = symbol;
      if (found.empty()) return left;
      advance();
      Expression result{Expression::Kind::binary, std::string(found), {}, {}};
      result.parts.push_back(std::move(left));
      result.parts.push_back(binary(level + 1));
      left = std::move(result);
    }
  }

  Expression unary() {
    for (const std::string_view symbol : {"!", "-"}) {
      if (!accept(symbol)) continue;
      Nesting nesting(*this);
      Expression result{Expression::Kind::unary, std::string(symbol), {}, {}};
      result.parts.push_back(unary());
      return result;
    }
    return primary();
  }

  Expression primary() {
    Nesting nesting(*this);
    if (accept("(")) {
      Expression inner = conditional();
      expect(")");
      return inner;
    }
    if (accept("[")) return {Expression::Kind::list, "[]", {}, items("]")};
    const std::string token(token_);
    switch (kind_) {
      case Token::number:
        advance();
        return literal(number(token));
      case Token::string:
        advance();
        return literal(token.substr(1, token.size() - 2));
      case Token::name:
        break;
      default:
        fail(token.empty() ? "something is missing at the end" : "unexpected '" + token + "'");
    }
    advance();
    if (token == "true") return literal(true);
    if (token == "false") return literal(false);
    if (token == "null") return literal(nullptr);
    if (accept("(")) return {Expression::Kind::call, token, {}, items(")")};
    return {Expression::Kind::name, token, {}, {}};
  }

  std::vector<Expression> items(std::string_view close) {
    std::vector<Expression> result;
    if (accept(close)) return result;
    do result.push_back(conditional());
    while (accept(","));
    expect(close);
    return result;
  }

  static Expression literal(nlohmann::ordered_json value) {
    return {Expression::Kind::literal, "", std::move(value), {}};
  }

  nlohmann::ordered_json number(const std::string& token) const {
    const char* const end = token.data() + token.size();
    std::int64_t whole = 0;
    if (const auto [stop, error] = std::from_chars(token.data(), end, whole);
        error == std::errc{} && stop == end)
      return whole;
    else if (error == std::errc::result_out_of_range && stop == end)
      fail("'" + token + "' is too large for a whole number");
    double real = 0;
    const auto [stop, error] = std::from_chars(token.data(), end, real);
    if (error != std::errc{} || stop != end) fail("'" + token + "' is not a number");
    return real;
  }

  // A hostile file must not exhaust the stack.
  struct Nesting {
    explicit Nesting(Parser& parser) : depth(parser.depth_) {
      if (++depth > 100) parser.fail("more than 100 nested parentheses");
    }
    ~Nesting() { --depth; }
    int& depth;
  };

  std::string_view text_;
  std::size_t at_ = 0;
  Token kind_ = Token::end;
  std::string_view token_;
  int depth_ = 0;
};

}  // namespace

Expression parse_expression(std::string_view text) {
  return Parser(text).parse();
}

}  // namespace fsdp_cts
