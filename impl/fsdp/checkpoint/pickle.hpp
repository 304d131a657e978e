#pragma once
// Python's pickle as plain data: numbers, texts, lists, and objects by the names of their classes. Reading runs nothing, whatever
// the bytes say; what is not data (code, references to things outside) is refused.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::checkpoint::pickle {

struct Value;
using ValuePtr = std::shared_ptr<Value>;

struct Value {
  enum class Kind { none, boolean, integer, real, text, sequence, dict, global, object };
  Kind kind = Kind::none;
  int64_t integer = 0;  ///< also of a boolean
  double real = 0;
  std::string text;             ///< of a global and of an object: "module.name" of itself and of its class
  std::vector<ValuePtr> items;  ///< of a sequence (list, tuple, set); an object's arguments
  std::vector<std::pair<ValuePtr, ValuePtr>> entries;  ///< of a dict, in its order
  ValuePtr state;                                      ///< what an object was given after it was made

  /// Each throws RuntimeError if this is something else, or has no such field.
  int64_t as_integer() const;
  const std::string& as_text() const;
  const std::vector<ValuePtr>& as_sequence() const;
  /// An attribute of an object whose state is a dict, as that of most classes is.
  const Value& attribute(const std::string& name) const;
  /// Null if there is none, or Python's None.
  const Value* find_attribute(const std::string& name) const;
  bool is_object_of(const std::string& class_name) const {
    return kind == Kind::object && text == class_name;
  }
};

/// Protocols 2 to 5. Throws RuntimeError with the position of what it cannot read.
ValuePtr read(const std::string& bytes);

/// Makes a pickle of protocol 2. Each call appends a value; `tuple`, `dict` and `object` take the last ones.
class Writer {
 public:
  Writer& none();
  Writer& boolean(bool value);
  Writer& integer(int64_t value);
  Writer& text(const std::string& value);
  Writer& global(const std::string& module, const std::string& name);
  Writer& mark();
  Writer& tuple();  ///< of all since the mark
  Writer& list();   ///< of all since the mark
  Writer& dict();   ///< of keys and values in turn since the mark
  Writer& call();   ///< the last but one with the last, a tuple, as its arguments
  Writer&
  create();  ///< an object of the class that is the last but one, with the last, a tuple, for `__new__`
  Writer& build();  ///< gives the last but one, an object, the last as its state
  std::string finish() const { return bytes_ + '.'; }

 private:
  std::string bytes_ = {'\x80', 2};
};

}  // namespace fsdp::checkpoint::pickle
