#pragma once
// Finds the tensors inside a forward's arguments and results: tensors, optionals, vectors, arrays, tuples,
// pairs and string maps of them, nested. Give a type of your own an overload `visit_tensors(T&, F)` in its
// namespace to take part.
#include <ATen/core/Tensor.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fsdp {

// Declared ahead of the first use: types of std do not lead a look-up by argument into this namespace.
template <class F>
void visit_tensors(at::Tensor& tensor, F&& f);
template <class T, class F>
void visit_tensors(std::optional<T>& value, F&& f);
template <class T, class F>
void visit_tensors(std::vector<T>& values, F&& f);
template <class T, size_t N, class F>
void visit_tensors(std::array<T, N>& values, F&& f);
template <class A, class B, class F>
void visit_tensors(std::pair<A, B>& value, F&& f);
template <class... T, class F>
void visit_tensors(std::tuple<T...>& value, F&& f);
template <class V, class F>
void visit_tensors(std::map<std::string, V>& values, F&& f);
template <class V, class F>
void visit_tensors(std::unordered_map<std::string, V>& values, F&& f);

template <class T, class F>
void visit_if_possible(T& value, F&& f) {
  if constexpr (requires { visit_tensors(value, f); }) visit_tensors(value, f);
}

template <class F>
void visit_tensors(at::Tensor& tensor, F&& f) {
  if (tensor.defined()) f(tensor);
}
template <class T, class F>
void visit_tensors(std::optional<T>& value, F&& f) {
  if (value) visit_if_possible(*value, f);
}
template <class T, class F>
void visit_tensors(std::vector<T>& values, F&& f) {
  for (auto& value : values) visit_if_possible(value, f);
}
template <class T, size_t N, class F>
void visit_tensors(std::array<T, N>& values, F&& f) {
  for (auto& value : values) visit_if_possible(value, f);
}
template <class A, class B, class F>
void visit_tensors(std::pair<A, B>& value, F&& f) {
  visit_if_possible(value.first, f);
  visit_if_possible(value.second, f);
}
template <class... T, class F>
void visit_tensors(std::tuple<T...>& value, F&& f) {
  std::apply([&](auto&... element) { (visit_if_possible(element, f), ...); }, value);
}
template <class V, class F>
void visit_tensors(std::map<std::string, V>& values, F&& f) {
  for (auto& [key, value] : values) visit_if_possible(value, f);
}
template <class V, class F>
void visit_tensors(std::unordered_map<std::string, V>& values, F&& f) {
  for (auto& [key, value] : values) visit_if_possible(value, f);
}

}  // namespace fsdp
