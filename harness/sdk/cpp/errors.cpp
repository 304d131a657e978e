#include "harness/sdk/cpp/errors.hpp"

#include <c10/util/Exception.h>

#include "harness/protocol/utf8.hpp"

namespace fsdp_cts::sdk {
namespace {

std::string python_class(const std::exception& error) {
  const auto is = [&error]<typename T>(std::type_identity<T>) {
    return dynamic_cast<const T*>(&error) != nullptr;
  };
  if (is(std::type_identity<c10::IndexError>{})) return "IndexError";
  if (is(std::type_identity<c10::ValueError>{})) return "ValueError";
  if (is(std::type_identity<c10::TypeError>{})) return "TypeError";
  if (is(std::type_identity<c10::NotImplementedError>{})) return "NotImplementedError";
  if (is(std::type_identity<std::invalid_argument>{}) || is(std::type_identity<std::domain_error>{}))
    return "ValueError";
  if (is(std::type_identity<std::out_of_range>{})) return "IndexError";
  if (is(std::type_identity<std::logic_error>{})) return "AssertionError";
  return "RuntimeError";
}

// Below the protocol's limit, which counts characters.
constexpr std::size_t longest_message = 60000;

ErrorReport described(std::exception_ptr error) {
  try {
    std::rethrow_exception(std::move(error));
  } catch (const TypedError& typed) {
    return typed.report();
  } catch (const c10::Error& failure) {
    return {python_class(failure), failure.what_without_backtrace(), {}};
  } catch (const std::exception& failure) {
    return {python_class(failure), failure.what(), {}};
  } catch (...) {
    return {"RuntimeError", "an exception that is no std::exception", {}};
  }
}

}  // namespace

Error::Error(std::string type, const std::string& message, std::string phase)
    : std::runtime_error(message), type_(std::move(type)), phase_(std::move(phase)) {}

std::string sendable(std::string_view message) {
  return shortened(message, longest_message);
}

ErrorReport describe_error(std::exception_ptr error) {
  ErrorReport report = described(std::move(error));
  report.message = sendable(report.message);
  return report;
}

}  // namespace fsdp_cts::sdk
