#include "harness/sdk/cpp/errors.hpp"

#include <c10/util/Exception.h>

#include <nlohmann/json.hpp>

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

// A message with bytes that are no text could not be sent, and the rank would end in place of the attempt.
ErrorReport sendable(ErrorReport report) {
  using Json = nlohmann::json;
  const Json text = Json::parse(Json(report.message).dump(-1, ' ', false, Json::error_handler_t::replace));
  report.message = shortened(text.get<std::string>(), longest_message);
  return report;
}

ErrorReport describe_error(std::exception_ptr error) {
  return sendable(described(std::move(error)));
}

}  // namespace fsdp_cts::sdk
