"""A testee's side of the fork server: a process that has imported everything once, and forks where the runner wants a rank. PROTOCOL.md, section 10."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import traceback
from typing import Any

from fsdp_cts_sdk.frames import Channel, ProtocolError

_ADDRESS = "FSDP_CTS_FORK_SERVER"
_PR_SET_PDEATHSIG = 1


def serve_forks() -> None:
    """Returns at once where the runner has not asked for a fork server. Else serves it, returns in every rank that was forked, with that rank's environment and
    output, and ends the process when the runner lets go. To be called when all modules are imported, and before anything is made that ranks must not share:
    threads, devices, process groups."""
    address = os.environ.get(_ADDRESS)
    if address is None:
        return
    channel = Channel.connect(address)
    # What has been imported stays for good: ranks, which collect garbage after every case, need not look through it, nor copy its pages.
    gc.collect()
    gc.freeze()
    while (request := channel.receive()) is not None:
        try:
            rank = _fork_rank(request)
        except (OSError, RuntimeError) as error:
            channel.send({"type": "not_forked", "reason": str(error)})
            continue
        if rank == 0:
            channel.close()
            return
        channel.send({"type": "forked", "process": rank})
    os._exit(0)


def _fork_rank(request: dict[str, Any]) -> int:
    """The process, or 0 in it."""
    if request["type"] != "fork":
        raise ProtocolError(f"a fork server does not know the message '{request['type']}'")
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:  # a child would have one thread only, and the locks of the others
        raise RuntimeError(f"a process of {threads} threads cannot be forked safely")
    sys.stdout.flush()
    sys.stderr.flush()
    report_end, report = os.pipe()
    go_end, go = os.pipe()
    # The runner adopts the rank when the process between them ends.
    between = os.fork()
    if between == 0:
        os.close(report_end)
        os.close(go)
        if os.fork() != 0:
            os._exit(0)
        try:
            _become_rank(request, report, go_end)
        except BaseException:  # it must not go on as a second server
            traceback.print_exc()
            os._exit(1)
        return 0
    os.close(report)
    os.close(go_end)
    rank = os.read(report_end, 32)
    os.waitpid(between, 0)
    if rank:
        os.write(go, b"1")
    os.close(report_end)
    os.close(go)
    if not rank:
        raise RuntimeError("a rank could not be forked")
    return int(rank)


def _become_rank(request: dict[str, Any], report: int, go: int) -> None:
    os.setpgid(0, 0)
    output = os.open(request["output"], os.O_WRONLY)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.write(report, str(os.getpid()).encode())
    if not os.read(go, 1):
        os._exit(1)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != request["runner"]:  # it died before the line above
        os._exit(1)
    os.close(report)
    os.close(go)
    _show_token(request["environment"]["FSDP_CTS_TOKEN"])
    del os.environ[_ADDRESS]
    os.environ.update(request["environment"])


def _show_token(token: str) -> None:
    """Stray processes of a group are found by its token in /proc, which shows the environment as it was when the program began: that is written over. The
    server's token is longer than any rank's."""
    c = ctypes.CDLL(None)
    c.getenv.restype = ctypes.c_void_p
    shown = c.getenv(b"FSDP_CTS_TOKEN")
    length = len(os.environ["FSDP_CTS_TOKEN"])
    if shown and length >= len(token):
        ctypes.memmove(shown, token.encode().ljust(length, b"\0"), length)
