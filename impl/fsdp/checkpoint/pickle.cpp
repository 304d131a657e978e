#include "checkpoint/pickle.hpp"

#include <bit>
#include <cstring>
#include <map>
#include <string_view>

#include "fsdp/errors.hpp"

namespace fsdp::checkpoint::pickle {
namespace {

using Kind = Value::Kind;

ValuePtr make(Kind kind) {
  auto value = std::make_shared<Value>();
  value->kind = kind;
  return value;
}
ValuePtr integer_value(int64_t number, Kind kind = Kind::integer) {
  auto value = make(kind);
  value->integer = number;
  return value;
}
ValuePtr text_value(std::string text, Kind kind = Kind::text) {
  auto value = make(kind);
  value->text = std::move(text);
  return value;
}

// The machine that pickle's instructions are written for: a stack, marks in it, and a memo.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  ValuePtr run() {
    for (;;) {
      begin_ = at_;
      const auto instruction = static_cast<unsigned char>(take(1)[0]);
      if (instruction == '.') return pop();
      step(instruction);
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw RuntimeError("a pickle cannot be read at byte " + std::to_string(begin_) + ": " + what);
  }

  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - at_) refuse("it ends there");
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }
  template <class Number>
  Number number() {
    static_assert(std::endian::native == std::endian::little, "pickles are little-endian");
    Number result;
    std::memcpy(&result, take(sizeof result).data(), sizeof result);
    return result;
  }
  std::string line() {
    const auto end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) refuse("a line without an end");
    const auto text = std::string(take(end - at_));
    take(1);
    return text;
  }
  int64_t long_integer() {
    const auto size = number<uint8_t>();
    if (size > sizeof(int64_t)) refuse("a number of more than 64 bits");
    const auto digits = take(size);
    uint64_t result = size > 0 && (digits.back() & 0x80) ? ~uint64_t{0} : 0;
    for (size_t i = size; i-- > 0;) result = result << 8 | static_cast<unsigned char>(digits[i]);
    return static_cast<int64_t>(result);
  }
  double real() {  // the one big-endian thing
    uint64_t bits = 0;
    for (const char byte : take(sizeof bits)) bits = bits << 8 | static_cast<unsigned char>(byte);
    return std::bit_cast<double>(bits);
  }

  void push(ValuePtr value) { stack_.push_back(std::move(value)); }
  ValuePtr pop() {
    if (stack_.empty() || (!marks_.empty() && stack_.size() == marks_.back()))
      refuse("nothing is there to take");
    auto value = std::move(stack_.back());
    stack_.pop_back();
    return value;
  }
  Value& top(Kind kind) {
    if (stack_.empty() || stack_.back()->kind != kind) refuse("the value there is of another kind");
    return *stack_.back();
  }
  std::vector<ValuePtr> since_mark() {
    if (marks_.empty()) refuse("nothing is marked");
    const auto mark = static_cast<std::ptrdiff_t>(marks_.back());
    marks_.pop_back();
    std::vector<ValuePtr> values(std::make_move_iterator(stack_.begin() + mark),
                                 std::make_move_iterator(stack_.end()));
    stack_.resize(static_cast<size_t>(mark));
    return values;
  }
  void push_sequence(std::vector<ValuePtr> items) {
    push(make(Kind::sequence));
    stack_.back()->items = std::move(items);
  }
  void push_last(size_t count) {
    std::vector<ValuePtr> items(count);
    while (count > 0) items[--count] = pop();
    push_sequence(std::move(items));
  }
  void append(std::vector<ValuePtr> items) {
    auto& sequence = top(Kind::sequence).items;
    sequence.insert(sequence.end(), items.begin(), items.end());
  }
  void set_items(std::vector<ValuePtr> items) {
    if (items.size() % 2 != 0) refuse("a key without a value");
    auto& dict = top(Kind::dict);
    for (size_t i = 0; i < items.size(); i += 2) dict.entries.emplace_back(items[i], items[i + 1]);
  }
  void make_object() {
    const auto arguments = pop(), made = pop();
    if (made->kind != Kind::global || arguments->kind != Kind::sequence) refuse("what is made has no class");
    auto object = text_value(made->text, Kind::object);
    object->items = arguments->items;
    push(std::move(object));
  }
  void push_global(const std::string& module, const std::string& name) {
    push(text_value(module + "." + name, Kind::global));
  }
  void remember(uint64_t index) {
    if (stack_.empty()) refuse("nothing is there to remember");
    memo_[index] = stack_.back();
  }
  void recall(uint64_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) refuse("nothing was remembered under " + std::to_string(index));
    push(found->second);
  }

  void step(unsigned char instruction) {
    switch (instruction) {
      case 0x80:
        take(1);
        return;  // PROTO
      case 0x95:
        take(8);
        return;  // FRAME
      case '(':
        marks_.push_back(stack_.size());
        return;  // MARK
      case 'N':
        return push(make(Kind::none));  // NONE
      case 0x88:
        return push(integer_value(1, Kind::boolean));  // NEWTRUE
      case 0x89:
        return push(integer_value(0, Kind::boolean));  // NEWFALSE
      case 'J':
        return push(integer_value(number<int32_t>()));  // BININT
      case 'K':
        return push(integer_value(number<uint8_t>()));  // BININT1
      case 'M':
        return push(integer_value(number<uint16_t>()));  // BININT2
      case 0x8a:
        return push(integer_value(long_integer()));  // LONG1
      case 'G':
        push(make(Kind::real));
        stack_.back()->real = real();
        return;  // BINFLOAT
      case 'X':
        return push(text_value(std::string(take(number<uint32_t>()))));  // BINUNICODE
      case 0x8c:
        return push(text_value(std::string(take(number<uint8_t>()))));  // SHORT_BINUNICODE
      case 0x8d:
        return push(text_value(std::string(take(number<uint64_t>()))));  // BINUNICODE8
      case ']':
      case ')':
      case 0x8f:
        return push_sequence({});  // EMPTY_LIST, EMPTY_TUPLE, EMPTY_SET
      case '}':
        return push(make(Kind::dict));  // EMPTY_DICT
      case 't':
      case 'l':
        return push_sequence(since_mark());  // TUPLE, LIST
      case 0x85:
        return push_last(1);  // TUPLE1
      case 0x86:
        return push_last(2);  // TUPLE2
      case 0x87:
        return push_last(3);  // TUPLE3
      case 'a': {
        auto item = pop();
        return append({item});
      }  // APPEND
      case 'e':
      case 0x90: {
        auto items = since_mark();
        return append(std::move(items));
      }  // APPENDS, ADDITEMS
      case 's': {
        auto value = pop(), key = pop();
        return set_items({key, value});
      }  // SETITEM
      case 'u': {
        auto items = since_mark();
        return set_items(std::move(items));
      }  // SETITEMS
      case 'd': {
        auto items = since_mark();
        push(make(Kind::dict));
        return set_items(std::move(items));
      }  // DICT
      case 'c': {
        const auto module = line(), name = line();
        return push_global(module, name);
      }  // GLOBAL
      case 0x93: {
        const auto name = pop(), module = pop();
        return push_global(module->as_text(), name->as_text());
      }  // STACK_GLOBAL
      case 'R':
      case 0x81:
        return make_object();  // REDUCE, NEWOBJ
      case 'b': {
        auto state = pop();
        top(Kind::object).state = std::move(state);
        return;
      }  // BUILD
      case 'q':
        return remember(number<uint8_t>());  // BINPUT
      case 'r':
        return remember(number<uint32_t>());  // LONG_BINPUT
      case 0x94:
        return remember(memo_.size());  // MEMOIZE
      case 'h':
        return recall(number<uint8_t>());  // BINGET
      case 'j':
        return recall(number<uint32_t>());  // LONG_BINGET
      default:
        refuse("instruction " + std::to_string(instruction) + " stands for no plain data");
    }
  }

  std::string_view bytes_;
  size_t at_ = 0;
  size_t begin_ = 0;  // of the instruction that is being read
  std::vector<ValuePtr> stack_;
  std::vector<size_t> marks_;
  std::map<uint64_t, ValuePtr> memo_;
};

template <class Number>
std::string little_endian(Number number) {
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

[[noreturn]] void other_kind(const char* wanted) {
  throw RuntimeError(std::string("a pickle holds something else where ") + wanted + " must be");
}

}  // namespace

int64_t Value::as_integer() const {
  if (kind != Kind::integer) other_kind("a whole number");
  return integer;
}

const std::string& Value::as_text() const {
  if (kind != Kind::text) other_kind("a text");
  return text;
}

const std::vector<ValuePtr>& Value::as_sequence() const {
  if (kind != Kind::sequence) other_kind("a list");
  return items;
}

const Value* Value::find_attribute(const std::string& name) const {
  if (kind != Kind::object || !state || state->kind != Kind::dict) return nullptr;
  for (const auto& [key, value] : state->entries) {
    if (key->kind == Kind::text && key->text == name)
      return value->kind == Kind::none ? nullptr : value.get();
  }
  return nullptr;
}

const Value& Value::attribute(const std::string& name) const {
  if (const auto* found = find_attribute(name)) return *found;
  throw RuntimeError("a pickle has no attribute '" + name + "' in '" + text + "'");
}

ValuePtr read(const std::string& bytes) {
  return Reader(bytes).run();
}

Writer& Writer::none() {
  bytes_ += 'N';
  return *this;
}
Writer& Writer::boolean(bool value) {
  bytes_ += value ? '\x88' : '\x89';
  return *this;
}
Writer& Writer::integer(int64_t value) {
  bytes_ += "\x8a\x08" + little_endian(value);
  return *this;
}
Writer& Writer::text(const std::string& value) {
  bytes_ += 'X' + little_endian(static_cast<uint32_t>(value.size())) + value;
  return *this;
}
Writer& Writer::global(const std::string& module, const std::string& name) {
  bytes_ += 'c' + module + '\n' + name + '\n';
  return *this;
}
Writer& Writer::mark() {
  bytes_ += '(';
  return *this;
}
Writer& Writer::tuple() {
  bytes_ += 't';
  return *this;
}
Writer& Writer::list() {
  bytes_ += 'l';
  return *this;
}
Writer& Writer::dict() {
  bytes_ += 'd';
  return *this;
}
Writer& Writer::call() {
  bytes_ += 'R';
  return *this;
}
Writer& Writer::create() {
  bytes_ += '\x81';
  return *this;
}
Writer& Writer::build() {
  bytes_ += 'b';
  return *this;
}

}  // namespace fsdp::checkpoint::pickle
