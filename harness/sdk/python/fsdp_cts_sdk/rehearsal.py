"""Runs a testee without the harness: the runner's side of the protocol in its smallest form, for a testee's own tests. It judges nothing
and supervises nothing beyond one deadline."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fsdp_cts_sdk.frames import Channel
from fsdp_cts_sdk.tensor_file import read_tensors, write_tensors


@dataclass
class RankAnswer:
    """What one rank said about one case. `end` is its last message: done, error or unsupported."""

    end: dict[str, Any] = field(default_factory=dict)
    progress: list[dict[str, Any]] = field(default_factory=list)
    observations: list[dict[str, Any]] = field(default_factory=list)
    tensors: dict[int, dict[str, torch.Tensor]] = field(default_factory=dict)  # by step

    def entries(self, what: str) -> list[dict[str, Any]]:
        """All entries of this kind, in order."""
        return [entry for o in self.observations for entry in o["entries"] if entry["what"] == what]

    def entry(self, what: str) -> dict[str, Any]:
        (only,) = self.entries(what)
        return only

    def value(self, what: str, which: int = -1) -> torch.Tensor:
        """A register, from the `which`th observation that has it."""
        found = [self.tensors[o["step"]][e["tensor"]] for o in self.observations for e in o["entries"] if e["what"] == what]
        return found[which]


class Rehearsal:
    """`world` processes of `command` that run cases one after the other. Use as a context manager."""

    def __init__(self, command: list[str], world: int, deadline: float = 120.0) -> None:
        self.hellos: list[dict[str, Any]] = []
        self._folder = tempfile.TemporaryDirectory(prefix="fsdp-cts-")
        self._root = Path(self._folder.name)
        self._world = world
        self._next_case = 0
        self._processes: list[subprocess.Popen[bytes]] = []
        self._channels: list[Channel] = []
        token = secrets.token_hex(8)
        listeners = [self._listener(rank) for rank in range(world)]
        for rank in range(world):
            self._processes.append(subprocess.Popen(command, env=self._environment(rank, token)))
        for listener in listeners:
            listener.settimeout(deadline)
            connection, _ = listener.accept()
            connection.settimeout(deadline)
            self._channels.append(Channel(connection))
            listener.close()
        self.hellos = [self._channels[rank].receive() or {} for rank in range(world)]

    def run(self, case: dict[str, Any], data: dict[str, torch.Tensor]) -> list[RankAnswer]:
        """`case` has models, plans and program in resolved form; the rest is filled in. One answer per rank."""
        self._next_case += 1
        scratch = self._root / f"case{self._next_case}"
        scratch.mkdir()
        write_tensors(scratch / "data.safetensors", data)
        message = {"switches": {}, "plans": {}, "id": "rehearsal", **case}
        message |= {"type": "case", "case": self._next_case, "world": self._world}
        message |= {"scratch": str(scratch), "data": str(scratch / "data.safetensors")}
        with ThreadPoolExecutor(self._world) as pool:
            return list(pool.map(lambda channel: self._act(channel, message, scratch), self._channels))

    def close(self) -> list[int]:
        """Says goodbye; the exit statuses."""
        for channel in self._channels:
            channel.send({"type": "bye"})
        statuses = [process.wait(timeout=30) for process in self._processes]
        for channel in self._channels:
            channel.close()
        self._folder.cleanup()
        return statuses

    def __enter__(self) -> Rehearsal:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.close()
        finally:
            for process in self._processes:
                if process.poll() is None:
                    process.kill()
                    process.wait()

    def _listener(self, rank: int) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self._root / f"rank{rank}.sock"))
        listener.listen(1)
        return listener

    def _environment(self, rank: int, token: str) -> dict[str, str]:
        numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": self._world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29500}
        return {
            **os.environ,
            **{name: str(value) for name, value in numbers.items()},
            "FSDP_CTS_SOCKET": str(self._root / f"rank{rank}.sock"),
            "FSDP_CTS_TOKEN": token,
            "FSDP_CTS_RENDEZVOUS": str(self._root / "rendezvous"),
        }

    def _act(self, channel: Channel, message: dict[str, Any], scratch: Path) -> RankAnswer:
        channel.send(message)
        answer = RankAnswer()
        while True:
            received = channel.receive()
            if received is None:
                raise ConnectionError("the testee closed its channel in the middle of a case")
            if received["type"] == "progress":
                answer.progress.append(received)
            elif received["type"] == "observation":
                answer.observations.append(received)
                answer.tensors[received["step"]] = read_tensors(scratch / received["file"]) if received.get("file") else {}
            else:
                answer.end = received
                return answer
