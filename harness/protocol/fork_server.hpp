// A testee's side of the fork server (PROTOCOL.md §10): a process that has loaded its libraries once and forks
// where the runner wants a rank, so that a rank begins in milliseconds.
#pragma once

namespace fsdp_cts {

// To be called first in main, while the process has one thread: nothing that a rank must not share with
// another, such as threads, devices or connections, may have been made. Without FSDP_CTS_FORK_SERVER in the
// environment it returns at once. With it, it serves the runner, returns in every rank that it forked, with that
// rank's environment and output, and ends the process when the runner lets go. Linux only.
void serve_forks();

}  // namespace fsdp_cts
