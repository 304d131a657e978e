#include "harness/scenario/catalogue/side_by_side.hpp"

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>
#include <vector>

namespace fsdp_cts {

void side_by_side(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  const auto take_turns = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  const std::size_t workers =
      std::min<std::size_t>({count, std::max(1u, std::thread::hardware_concurrency()), 8});
  std::vector<std::future<void>> others;
  for (std::size_t i = 1; i < workers; ++i) others.push_back(std::async(std::launch::async, take_turns));
  take_turns();
  for (std::future<void>& other : others) other.get();
}

}  // namespace fsdp_cts
