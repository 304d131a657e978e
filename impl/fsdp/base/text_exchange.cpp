#include "base/text_exchange.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace fsdp {

std::vector<std::string> all_gather_text(Communicator& group, const std::string& own, const CallSite& site) {
  if (group.size() == 1) return {own};
  auto length = at::empty({1}, at::TensorOptions(group.device()).dtype(at::kLong));
  length.fill_(static_cast<int64_t>(own.size()));
  auto lengths = at::empty({group.size()}, length.options());
  group.all_gather(lengths, length, site)->wait();
  lengths = lengths.cpu();
  const auto longest = lengths.max().item<int64_t>();
  std::vector<std::string> texts(static_cast<size_t>(group.size()));
  if (longest == 0) return texts;

  auto bytes = at::zeros({longest}, at::TensorOptions(at::kByte));
  std::copy(own.begin(), own.end(), reinterpret_cast<char*>(bytes.mutable_data_ptr()));
  auto all = at::empty({group.size() * longest}, at::TensorOptions(group.device()).dtype(at::kByte));
  group.all_gather(all, bytes.to(group.device()), site)->wait();
  all = all.cpu();
  const auto* begin = static_cast<const char*>(all.const_data_ptr());
  for (int64_t rank = 0; rank < group.size(); ++rank)
    texts[static_cast<size_t>(rank)].assign(begin + rank * longest,
                                            static_cast<size_t>(lengths[rank].item<int64_t>()));
  return texts;
}

}  // namespace fsdp
