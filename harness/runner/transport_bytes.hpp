// What the kernel says that processes have sent over TCP: a witness of collectives that is no part of a
// testee.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace fsdp_cts {

// Bytes sent, acknowledged or not, without retransmissions, by socket (its inode).
using SocketBytes = std::map<std::uint64_t, std::uint64_t>;

// Of the TCP sockets that each process, or a child of it, has open now. Nothing where the kernel doesn't
// tell. A socket that is closed takes its count with it.
std::optional<std::vector<SocketBytes>> tcp_bytes_sent(const std::vector<pid_t>& processes);

// What was sent between two looks at one process. Nothing if a socket was closed in between: its count is
// lost.
std::optional<std::uint64_t> sent_between(const SocketBytes& before, const SocketBytes& after);

}  // namespace fsdp_cts
