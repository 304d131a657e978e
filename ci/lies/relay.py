"""A testee between the runner and an honest one: it passes every message on, but for the lie that a subclass tells.

    python LIE.py /path/to/an/honest/testee [arguments]

The honest testee is started with the same environment and another control socket. What a liar may know is what every testee knows: the
messages, the files named in them, its rank.
"""

import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading

# The module alone: its package loads torch, which no liar needs and every rank would wait for.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "harness/sdk/python/fsdp_cts_sdk"))

from frames import Channel  # noqa: E402


class Relay:
    """Override `from_runner` and `from_testee`: the message to pass on, or None to keep it back."""

    def __init__(self, environment: dict[str, str] | None = None) -> None:
        self.environment = dict(os.environ if environment is None else environment)
        self.cases = 0  # that the runner has sent
        self._to_runner = threading.Lock()

    def from_runner(self, message: dict) -> dict | None:
        return message

    def from_testee(self, message: dict) -> dict | None:
        return message

    def say(self, message: dict) -> None:
        """To the runner, beside what the honest testee says."""
        with self._to_runner:
            self.runner.send(message)

    def run(self, command: list[str]) -> int:
        self.runner = Channel.connect(self.environment["FSDP_CTS_SOCKET"])
        honest = self._started(command)
        threading.Thread(target=self._answers, daemon=True).start()
        while (message := self.runner.receive()) is not None:
            self.cases += message["type"] == "case"
            if (message := self.from_runner(message)) is not None:
                self.testee.send(message)
                if message["type"] == "bye":
                    break
        return honest.wait()

    def _started(self, command: list[str]) -> subprocess.Popen:
        """The honest testee. Nobody else connects to its socket, whose folder goes at once: a liar may end at any time, without a word."""
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            address = f"{folder}/socket"
            listening.bind(address)
            listening.listen(1)
            honest = subprocess.Popen(command, env={**self.environment, "FSDP_CTS_SOCKET": address})
            self.testee = Channel(listening.accept()[0])
        return honest

    def _answers(self) -> None:
        while (message := self.testee.receive()) is not None:
            if (message := self.from_testee(message)) is not None:
                self.say(message)


def tell(lie: type[Relay]) -> None:
    sys.exit(lie().run(sys.argv[1:]))
