#pragma once
// Numbered messages between the ranks of one host, each rank to all others. For shm_communicator.cpp.
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "comm/collective_signature.hpp"

namespace fsdp {

/// Each rank owns a mailbox: an anonymous file in memory that all ranks map, and that only the owner writes
/// to. In it are a table of where message n begins, the messages, and how far the owner has posted and
/// consumed. The n-th message of every rank belongs to the n-th collective of the group; a message begins
/// with the signature of that collective as its rank has issued it. Any thread may call anything.
class ShmExchange {
 public:
  /// The message of the given rank of the group; blocks until it has come. Throws RuntimeError if that rank
  /// has issued another collective.
  using Messages = std::function<const std::byte*(int64_t rank)>;
  using Fill = std::function<void(std::byte* message)>;
  using Finish = std::function<void(const Messages& messages)>;

  /// `ranks`: world ranks of the group, `rank`: this one among them. Blocks until all have come.
  ShmExchange(c10d::Store& store, int64_t rank, const std::vector<int64_t>& ranks,
              std::chrono::milliseconds timeout);
  ~ShmExchange();
  ShmExchange(const ShmExchange&) = delete;
  ShmExchange& operator=(const ShmExchange&) = delete;

  /// Posts this rank's message; `fill` writes it. Returns the number to complete it by.
  uint32_t issue(CollectiveSignature signature, size_t bytes, const Fill& fill, Finish finish);
  /// Finishes this collective, after those issued before it. Once one has failed all later ones do.
  void complete(uint32_t number);

 private:
  /// A number that only grows, modulo 2^32, and that other processes wait for.
  struct Counter {
    std::atomic<uint32_t> value;
    std::atomic<uint32_t> waiting;  ///< how many are asleep until it changes
  };
  static constexpr uint32_t kSlots = 4096;  ///< messages of a rank that not everybody has consumed
  struct Mailbox {
    uint64_t token;
    alignas(64) Counter posted;
    alignas(64) Counter consumed;
    alignas(64) uint64_t begins[kSlots];  ///< of message n, in bytes from the mailbox' begin, at n % kSlots
  };
  struct Peer {
    Mailbox* mailbox = nullptr;
    pid_t process = 0;
  };
  struct Pending {
    CollectiveSignature signature;
    uint32_t number;
    Finish finish;
  };

  struct Address;

  Mailbox* map(int file) const;
  static bool reached(const Counter& counter, uint32_t target);
  static void advance(Counter& counter);
  void meet(c10d::Store& store);
  void open_mailbox(int64_t rank, const Address& address);
  void complete_in_order(uint32_t number);
  const std::byte* message_of(int64_t rank, const Pending& work) const;
  uint64_t make_room(const char* collective, size_t header, size_t bytes);
  void reclaim();
  void await(Counter Mailbox::*counter, int64_t rank, uint32_t target, const char* collective) const;
  std::string group_text() const;
  Mailbox& own() const { return *peers_[static_cast<size_t>(rank_)].mailbox; }

  int64_t rank_;
  std::vector<int64_t> ranks_;
  std::chrono::milliseconds timeout_;
  size_t reach_ = 0;         ///< of every mailbox, in bytes
  std::vector<Peer> peers_;  ///< by rank of the group; this one too
  std::mutex mutex_;         ///< of what is below
  uint32_t next_ = 0;
  uint32_t oldest_ = 0;                    ///< the first message whose room is not free again
  std::map<uint64_t, uint64_t> occupied_;  ///< begin and end of the messages from there on
  std::deque<Pending> pending_;
  std::exception_ptr failure_;
};

}  // namespace fsdp
