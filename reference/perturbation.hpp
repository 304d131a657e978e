// Other roundings on purpose: while one of these lives, the result of every ATen operator on this thread that
// rounds is moved by one unit in the last place of its dtype, up or down by a fixed pattern. What comes out
// shows how far a case's numbers may move on a processor whose kernels round elsewhere.
//
// Left as it is: zeros and what is not finite, results that are copied, selected or compared and not computed
// (views, copies without a narrower dtype, relu, max, …), and integers. In a dtype of less than 24 bits
// kernels compute wider and round once, so other kernels give other bits only here and there: of such a
// result one element in 16 is moved.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>

namespace fsdp_cts::reference {

class Perturbation {
 public:
  explicit Perturbation(std::uint64_t pattern);
  ~Perturbation();
  Perturbation(const Perturbation&) = delete;
  Perturbation& operator=(const Perturbation&) = delete;

  // Starts the pattern of a step anew, so that ranks which compute the same get the same.
  void begin(int step);

 private:
  at::CallbackHandle handle_;
};

}  // namespace fsdp_cts::reference
