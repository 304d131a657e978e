"""The testee's main loop: connect, hello, cases, bye. PROTOCOL.md, sections 1 to 4."""

from __future__ import annotations

import faulthandler
import gc
import os
import platform
import sys
from pathlib import Path
from typing import Any

import torch

from fsdp_cts_sdk.case_data import CaseData
from fsdp_cts_sdk.context import Context
from fsdp_cts_sdk.errors import StepFailed, Unsupported, error_report, sendable, traceback_of
from fsdp_cts_sdk.frames import Channel, ProtocolError
from fsdp_cts_sdk.interpreter import Interpreter, unknown_in
from fsdp_cts_sdk.observer import Observation
from fsdp_cts_sdk.operations import Operations
from fsdp_cts_sdk.tensor_file import read_tensors, write_tensors

PROTOCOL_VERSION = 1


def serve(operations: Operations) -> int:
    """Serves until `bye` or until the socket closes; the process's exit status. Sets one intra-op thread."""
    address = os.environ.get("FSDP_CTS_SOCKET")
    if not address:
        print("This is a testee of fsdp-cts: the runner starts it, with FSDP_CTS_SOCKET set. Try `fsdp-cts run --help`.", file=sys.stderr)
        return 2
    faulthandler.enable()  # a process that crashes says where, on stderr
    torch.set_num_threads(1)
    channel = Channel.connect(address)
    channel.send(_hello(operations, int(os.environ["RANK"]), os.environ.get("FSDP_CTS_TOKEN", "")))
    while (message := channel.receive()) is not None and message["type"] != "bye":
        if message["type"] != "case":
            raise ProtocolError(f"a testee does not know the message '{message['type']}'")
        _RunningCase(operations, channel, message).run()
        gc.collect()  # FSDP's states, hooks and modules refer to each other in cycles
        # What outlives a case and its collection is needed until the end: lazily imported modules, what libraries cache. Looking through it
        # again after every case would soon take longer than the cases: later collections skip it.
        gc.freeze()
    channel.close()
    return 0


def _hello(operations: Operations, rank: int, token: str) -> dict[str, Any]:
    identity = operations.identity()
    environment = {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()} {'-'.join(platform.libc_ver())}",
        "torch": torch.__version__,
        "torch_git": torch.version.git_version,
        "threads": str(torch.get_num_threads()),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        **identity.environment,
    }
    return {
        "type": "hello",
        "protocol": PROTOCOL_VERSION,
        "token": token,
        "rank": rank,
        "implementation": {"name": identity.name, "version": identity.version},
        "apis": identity.apis,
        "backend": identity.backend,
        "device": identity.device,
        "reduction_order": identity.reduction_order,
        "environment": environment,
    }


class _RunningCase:
    """One case on one rank, reported to the runner step by step."""

    def __init__(self, operations: Operations, channel: Channel, case: dict[str, Any]) -> None:
        self._operations = operations
        self._channel = channel
        self._case = case
        self._number = case["case"]
        self._rank = int(os.environ["RANK"])

    def run(self) -> None:
        reason = self._missing() or unknown_in(self._case) or self._operations.unsupported(self._case)
        if reason is not None:
            self._send("unsupported", reason=reason)
            return
        data = CaseData(read_tensors(self._case["data"]), self._rank, self._operations.device)
        interpreter = Interpreter(self._operations, Context(self._rank, self._case["world"], self._case, data))
        done: dict[str, Any] | None = None
        try:
            self._run(interpreter)
            done = {"launches": self._operations.device_launches()}
        except StepFailed as failed:
            self._send("error", step=failed.step, error=failed.report)
        except Unsupported as reason:
            self._send("unsupported", reason=sendable(str(reason)))
        finally:
            self._operations.end_case()
            interpreter.close()
        if done is not None:
            del interpreter, data
            done["kept_bytes"] = self._operations.device_kept_bytes()
            self._send("done", **{key: value for key, value in done.items() if value is not None})

    def _missing(self) -> str | None:
        """Of what the case requires of the machine."""
        if "gpu" in self._case.get("requires", ()) and self._operations.device.type == "cpu":
            return "the case is about an accelerator, and this testee was started on the CPU; try --device cuda"
        return None

    def _run(self, interpreter: Interpreter) -> None:
        self._send("progress", step=-1, verb="rendezvous")
        try:
            self._operations.rendezvous()
        except Unsupported:
            raise
        except Exception as error:
            raise StepFailed(-1, {**error_report(error, "other"), "traceback": traceback_of(error)}) from error
        for index, step in enumerate(self._case["program"]):
            if not interpreter.will_run(step):
                continue
            self._send("progress", step=index, verb=step["verb"])
            try:
                observation = interpreter.run(index)
            finally:
                self._send_findings(index)
            use = self._operations.device_use()  # after every step, so that each is counted by itself
            if use is not None and step["verb"] in ("forward", "backward"):
                self._send("device_use", rank=self._rank, step=index, **use)
            if observation is not None:
                self._send_observation(observation)

    def _send_findings(self, index: int) -> None:
        for finding in self._operations.device_findings():
            self._send("finding", rank=self._rank, step=index, **finding)

    def _send_observation(self, observation: Observation) -> None:
        keys: dict[str, Any] = {key: observation.step[key] for key in ("label", "iteration") if key in observation.step}
        if observation.tensors:
            keys["file"] = f"rank{self._rank}-step{observation.index}.safetensors"
            with self._operations.observing():
                write_tensors(Path(self._case["scratch"]) / keys["file"], observation.tensors)
        self._send("observation", rank=self._rank, step=observation.index, entries=observation.entries, **keys)

    def _send(self, kind: str, **keys: Any) -> None:
        self._channel.send({"type": kind, "case": self._number, **keys})
