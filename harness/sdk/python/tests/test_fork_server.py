import ctypes
import os
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from fsdp_cts_sdk.frames import Channel

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
SERVER = """
import os, sys, threading
from fsdp_cts_sdk.fork_server import serve_forks
print("imported")
if sys.argv[1:]:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
serve_forks()
shown = open("/proc/self/environ").read().split("\\0")
print(os.environ["RANK"], os.environ.get("FSDP_CTS_FORK_SERVER"), "FSDP_CTS_TOKEN=group" in shown, os.getpgid(0) == os.getpid(), flush=True)
sys.exit(7)
"""


class ForkServer(unittest.TestCase):
    def setUp(self) -> None:
        # As the runner is, so that ranks become children of this process.
        ctypes.CDLL(None).prctl(SUBREAPER, 1)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self._folder = Path(folder.name)

    def _start(self, *arguments: str) -> tuple[subprocess.Popen, Channel]:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self._folder / "server"))
            listener.listen()
            environment = os.environ | {"FSDP_CTS_FORK_SERVER": str(self._folder / "server"), "FSDP_CTS_TOKEN": "server" * 8, "OMP_NUM_THREADS": "1"}
            server = subprocess.Popen([sys.executable, "-c", SERVER, *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            channel = Channel(listener.accept()[0])
        self.addCleanup(channel.close)
        return server, channel

    def _request(self, rank: int) -> dict:
        environment = {"RANK": str(rank), "FSDP_CTS_TOKEN": "group"}
        return {"type": "fork", "environment": environment, "output": str(self._folder / "output"), "runner": os.getpid()}

    def test_ranks_are_children_of_the_runner_with_an_environment_and_an_output_of_their_own(self) -> None:
        server, channel = self._start()
        for rank in (0, 1):
            (self._folder / "output").write_text("")
            channel.send(self._request(rank))
            answer = channel.receive()
            self.assertEqual(answer["type"], "forked")
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(answer["process"], 0)[1]), 7)
            self.assertEqual((self._folder / "output").read_text(), f"{rank} None True True\n")
        channel.close()
        self.assertEqual(server.wait(), 0)

    def test_a_rank_that_cannot_be_made_is_no_second_server(self) -> None:
        server, channel = self._start()
        channel.send(self._request(0) | {"output": str(self._folder / "nowhere" / "output")})
        self.assertEqual(channel.receive(), {"type": "not_forked", "reason": "a rank could not be forked"})
        channel.close()
        self.assertEqual(server.wait(), 0)

    def test_a_process_with_threads_is_not_forked(self) -> None:
        server, channel = self._start("with a thread")
        channel.send(self._request(0))
        self.assertEqual(channel.receive(), {"type": "not_forked", "reason": "a process of 2 threads cannot be forked safely"})
        channel.close()
        self.assertEqual(server.wait(), 0)


if __name__ == "__main__":
    unittest.main()
