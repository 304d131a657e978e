#include "comm/shm/shm_exchange.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>
#include <utility>

#include "fsdp/errors.hpp"

namespace fsdp {
namespace {

using Clock = std::chrono::steady_clock;

// Of a mailbox: addresses; pages come when they are written.
constexpr size_t kMostReach = size_t{1} << 36;
constexpr size_t kLeastReach = size_t{1} << 28;
constexpr size_t kAlignment = 64;
constexpr auto kSpin = std::chrono::microseconds(5);
constexpr auto kPulse = std::chrono::milliseconds(100);  // how often a sleeper looks whether its peer lives

size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

class File {
 public:
  File(int descriptor, const std::string& what) : descriptor(descriptor) {
    if (descriptor < 0) throw RuntimeError(what + ": " + std::strerror(errno));
  }
  ~File() { close(descriptor); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const int descriptor;
};

std::string in_mib(size_t bytes) {
  return std::to_string(bytes >> 20) + " MiB";
}

/// The most of which this process can map a mailbox for each rank and has as much again left for all else.
size_t affordable_reach(size_t ranks) {
  for (auto reach = kMostReach; reach >= kLeastReach; reach /= 2) {
    const auto probed = 2 * ranks * reach;
    void* probe = mmap(nullptr, probed, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (probe == MAP_FAILED) continue;
    munmap(probe, probed);
    return reach;
  }
  throw RuntimeError("the shared memory of a group of " + std::to_string(ranks) + " ranks takes at least " +
                     std::to_string(ranks) + " x " + in_mib(kLeastReach) +
                     " of address space, and this process may not map that and leave as much free (" +
                     std::strerror(errno) + "): raise its limit (ulimit -v), or use Gloo");
}

/// Also when its parent has not yet taken note of it.
bool has_ended(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string stat;
  if (!std::getline(file, stat)) return true;
  const auto name_end = stat.rfind(')');  // the name may hold anything
  const char state = name_end + 2 < stat.size() ? stat[name_end + 2] : '?';
  return state == 'Z' || state == 'X';
}

}  // namespace

/// What a rank tells the others so that they find its mailbox.
struct ShmExchange::Address {
  pid_t process = 0;
  int file = -1;
  uint64_t token = 0;
  size_t reach = 0;  ///< that this rank can afford

  std::string text() const {
    std::ostringstream text;
    text << process << ' ' << file << ' ' << token << ' ' << reach;
    return text.str();
  }
  static Address parse(const std::string& text) {
    Address address;
    std::istringstream(text) >> address.process >> address.file >> address.token >> address.reach;
    return address;
  }
};

ShmExchange::ShmExchange(c10d::Store& store, int64_t rank, const std::vector<int64_t>& ranks,
                         std::chrono::milliseconds timeout)
    : rank_(rank), ranks_(ranks), timeout_(timeout), peers_(ranks.size()) {
  try {
    meet(store);
  } catch (...) {
    for (const auto& peer : peers_)
      if (peer.mailbox != nullptr) munmap(peer.mailbox, reach_);
    throw;
  }
}

ShmExchange::~ShmExchange() {
  for (const auto& peer : peers_) munmap(peer.mailbox, reach_);
}

ShmExchange::Mailbox* ShmExchange::map(int file) const {
  void* memory = mmap(nullptr, reach_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (memory == MAP_FAILED)
    throw RuntimeError("could not map " + in_mib(reach_) + " of shared memory: " + std::strerror(errno));
  madvise(memory, reach_, MADV_DONTDUMP);  // a core dump would walk through all of it
  return static_cast<Mailbox*>(memory);
}

void ShmExchange::meet(c10d::Store& store) {
  const File file(memfd_create("fsdp", MFD_CLOEXEC), "could not make shared memory");
  std::random_device random;
  const Address own{getpid(), file.descriptor, (uint64_t{random()} << 32) | random(),
                    affordable_reach(ranks_.size())};
  if (ftruncate(file.descriptor, static_cast<off_t>(own.reach)) != 0 ||
      pwrite(file.descriptor, &own.token, sizeof(own.token), offsetof(Mailbox, token)) != sizeof(own.token))
    throw RuntimeError(std::string("could not size shared memory: ") + std::strerror(errno));

  store.set(std::to_string(rank_), own.text());
  std::vector<Address> addresses;
  for (int64_t rank = 0; rank < static_cast<int64_t>(ranks_.size()); ++rank)
    addresses.push_back(rank == rank_ ? own : Address::parse(store.get_to_str(std::to_string(rank))));
  // A rank whose address space is limited has to map the others' mailboxes too.
  reach_ = own.reach;
  for (const auto& address : addresses) reach_ = std::min(reach_, address.reach);
  if (reach_ < kLeastReach)
    throw RuntimeError("what a rank has left in the store is no address of its mailbox");
  peers_[static_cast<size_t>(rank_)] = {map(file.descriptor), own.process};
  for (int64_t rank = 0; rank < static_cast<int64_t>(ranks_.size()); ++rank)
    if (rank != rank_) open_mailbox(rank, addresses[static_cast<size_t>(rank)]);

  // Nobody leaves, or closes its file, before all have opened it.
  const auto everybody = [this](const Messages& messages) {
    for (int64_t rank = 0; rank < static_cast<int64_t>(ranks_.size()); ++rank) messages(rank);
  };
  complete(issue(
      CollectiveSignature(), 0, [](std::byte*) {}, everybody));
}

void ShmExchange::open_mailbox(int64_t rank, const Address& address) {
  auto& peer = peers_[static_cast<size_t>(rank)];
  peer.process = address.process;
  const auto name = "rank " + std::to_string(ranks_[static_cast<size_t>(rank)]);
  const auto path = "/proc/" + std::to_string(address.process) + "/fd/" + std::to_string(address.file);
  const File file(open(path.c_str(), O_RDWR | O_CLOEXEC),
                  "could not open the shared memory of " + name + " at " + path +
                      " (has it ended, or is it on another host or in another container?)");
  peer.mailbox = map(file.descriptor);
  if (lseek(file.descriptor, 0, SEEK_END) != static_cast<off_t>(address.reach) ||
      peer.mailbox->token != address.token)
    throw RuntimeError("what lies at " + path + " is not the shared memory of " + name +
                       ": all ranks must be on one host, and see each other's processes");
}

uint32_t ShmExchange::issue(CollectiveSignature signature, size_t bytes, const Fill& fill, Finish finish) {
  const std::lock_guard lock(mutex_);
  signature.set_number(next_);
  const auto header = aligned(signature.size_in_bytes());
  const auto begin = make_room(signature.kind_text(), header, bytes);
  auto* message = reinterpret_cast<std::byte*>(&own()) + begin;
  signature.write(message);
  fill(message + header);
  own().begins[next_ % kSlots] = begin;
  pending_.push_back({std::move(signature), next_, std::move(finish)});
  advance(own().posted);
  return next_++;
}

void ShmExchange::complete(uint32_t number) {
  const std::lock_guard lock(mutex_);
  complete_in_order(number);
}

void ShmExchange::complete_in_order(uint32_t number) {
  while (!pending_.empty() && static_cast<int32_t>(pending_.front().number - number) <= 0) {
    if (failure_) std::rethrow_exception(failure_);
    const auto& work = pending_.front();
    try {
      work.finish([this, &work](int64_t rank) { return message_of(rank, work); });
    } catch (...) {
      failure_ = std::current_exception();
      throw;
    }
    pending_.pop_front();
    advance(own().consumed);
  }
}

const std::byte* ShmExchange::message_of(int64_t rank, const Pending& work) const {
  const auto& signature = work.signature;
  await(&Mailbox::posted, rank, work.number + 1, signature.kind_text());
  const auto* mailbox = peers_[static_cast<size_t>(rank)].mailbox;
  const auto* message = reinterpret_cast<const std::byte*>(mailbox) + mailbox->begins[work.number % kSlots];
  if (!signature.is_written_at(message))
    throw RuntimeError(signature.difference(CollectiveSignature(message), ranks_[static_cast<size_t>(rank)],
                                            ranks_[static_cast<size_t>(rank_)], ranks_));
  return message + aligned(signature.size_in_bytes());
}

/// The first gap: what was used last is still in the caches.
uint64_t ShmExchange::make_room(const char* collective, size_t header, size_t bytes) {
  reclaim();
  if (next_ - oldest_ == kSlots) {
    complete_in_order(oldest_);
    for (size_t rank = 0; rank < peers_.size(); ++rank)
      await(&Mailbox::consumed, static_cast<int64_t>(rank), oldest_ + 1, collective);
    reclaim();
  }
  const auto room = header + aligned(bytes);
  uint64_t begin = aligned(sizeof(Mailbox));
  for (const auto& [from, to] : occupied_) {
    if (from - begin >= room) break;
    begin = to;
  }
  if (begin + room > reach_) {
    auto text = std::string("no room for ") + collective + " of " + std::to_string(bytes) +
                " bytes beside those in flight: " + in_mib(reach_) +
                " of shared memory is what a rank can use";
    if (reach_ < kMostReach)
      text += ", as the address space of a rank is limited: raise the limit (ulimit -v), or use Gloo";
    throw RuntimeError(text);
  }
  occupied_.emplace(begin, begin + room);
  return begin;
}

void ShmExchange::reclaim() {
  auto count = next_ - oldest_;
  for (const auto& peer : peers_)
    count = std::min(count, peer.mailbox->consumed.value.load(std::memory_order_acquire) - oldest_);
  for (; count > 0; --count) occupied_.erase(own().begins[oldest_++ % kSlots]);
}

bool ShmExchange::reached(const Counter& counter, uint32_t target) {
  return static_cast<int32_t>(counter.value.load(std::memory_order_acquire) - target) >= 0;
}

void ShmExchange::advance(Counter& counter) {
  counter.value.fetch_add(1);  // and only then look who is waiting, as waiters do the reverse
  if (counter.waiting.load() != 0)
    syscall(SYS_futex, &counter.value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void ShmExchange::await(Counter Mailbox::*which, int64_t rank, uint32_t target,
                        const char* collective) const {
  const auto& peer = peers_[static_cast<size_t>(rank)];
  auto& counter = peer.mailbox->*which;
  if (reached(counter, target)) return;
  const auto start = Clock::now();
  if (std::thread::hardware_concurrency() >= ranks_.size()) {
    while (Clock::now() - start < kSpin)
      if (reached(counter, target)) return;
  }
  const auto name = "rank " + std::to_string(ranks_[static_cast<size_t>(rank)]);
  std::string failure;
  counter.waiting.fetch_add(1);
  while (failure.empty()) {
    const auto seen = counter.value.load();
    if (reached(counter, target)) break;
    const auto left = std::min<std::chrono::nanoseconds>(kPulse, start + timeout_ - Clock::now());
    const timespec slice{0, std::max<long>(static_cast<long>(left.count()), 0)};
    static_assert(kPulse < std::chrono::seconds(1), "a slice has no seconds");
    if (syscall(SYS_futex, &counter.value, FUTEX_WAIT, seen, &slice, nullptr, 0) == 0 || errno != ETIMEDOUT)
      continue;
    const bool ended = has_ended(peer.process);
    if (reached(counter, target)) break;  // perhaps the last thing it did
    if (ended) failure = name + " has ended; " + collective + group_text() + " still needs it";
    if (!ended && Clock::now() - start >= timeout_)
      failure = "timed out after " + std::to_string(timeout_.count()) + " ms waiting for " + name + " in " +
                collective + group_text();
  }
  counter.waiting.fetch_sub(1);
  if (!failure.empty()) throw RuntimeError(failure);
}

std::string ShmExchange::group_text() const {
  return of_ranks(ranks_) + ", seen by rank " + std::to_string(ranks_[static_cast<size_t>(rank_)]);
}

}  // namespace fsdp
