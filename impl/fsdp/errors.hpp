#pragma once
// Exceptions of the library. Each knows the name of the Python class that PyTorch's FSDP2 raises in the same
// situation.
#include <stdexcept>
#include <string>

namespace fsdp {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  virtual const char* python_class() const noexcept = 0;
};

class ValueError : public Error {
 public:
  using Error::Error;
  const char* python_class() const noexcept override { return "ValueError"; }
};

class AssertionError : public Error {
 public:
  using Error::Error;
  const char* python_class() const noexcept override { return "AssertionError"; }
};

class NotImplementedError : public Error {
 public:
  using Error::Error;
  const char* python_class() const noexcept override { return "NotImplementedError"; }
};

class RuntimeError : public Error {
 public:
  using Error::Error;
  const char* python_class() const noexcept override { return "RuntimeError"; }
};

}  // namespace fsdp
