#pragma once
// Exceptions of the library. Their texts are those of PyTorch's FSDP in the same situation, where it has one.
#include <stdexcept>

namespace fsdp {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An argument is wrong, whatever state the model is in.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// A call that this module, or the moment, does not allow.
class InvalidState : public Error {
 public:
  using Error::Error;
};

/// A combination that FSDP does not offer.
class NotImplemented : public Error {
 public:
  using Error::Error;
};

/// What went wrong while running: a peer, a device, a state dict that does not fit.
class RuntimeError : public Error {
 public:
  using Error::Error;
};

}  // namespace fsdp
