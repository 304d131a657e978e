"""PyTorch's FSDP on the simulated accelerator (harness/sim): what the device finds is its word, below the library. `--without-wait` makes
PyTorch forget one of its waits, to see that the device notices."""

from __future__ import annotations

import dataclasses
import functools
import linecache
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch.distributed.fsdp import _flat_param, _runtime_utils
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPCommContext

from fsdp_cts_sdk import Model
from pytorch_testee.shm_backend import NotThere
from pytorch_testee.testee import PyTorchTestee

FINDINGS_OF_A_STEP = 32  # a program that waits for nothing has thousands, and the first tell it


def begin(package: Path | None, without_wait: str | None) -> torch.device:
    """Registers the device and answers this rank's."""
    if package is None:
        raise NotThere("--device sim needs --sim-package: the folder `python` of the build, which holds fsdp_sim (fsdp-cts passes it on)")
    sys.path.append(str(package))
    try:
        import fsdp_sim
    except ImportError as error:
        raise NotThere(
            f"--device sim: {package} has no fsdp_sim that can be loaded: {error}. It serves the Python and the PyTorch that it was built "
            "for: build it anew for this one (ci/build with FSDP_CTS_PYTHON)"
        ) from error
    _name_streams(fsdp_sim)
    if without_wait:
        _forget(fsdp_sim, without_wait)
    device = torch.device("sim", int(os.environ.get("LOCAL_RANK", "0")) % fsdp_sim.device_count())
    fsdp_sim.set_device(device)
    return device


def carry_collectives_by(make_backend: Callable[..., Any]) -> None:
    """Instead of Gloo."""
    import fsdp_sim

    fsdp_sim.transport = lambda options: make_backend(options, None)


class SimulatedTestee(PyTorchTestee):
    def __init__(self, backend: str, device: torch.device) -> None:
        import fsdp_sim

        super().__init__(backend, device)
        self._sim = fsdp_sim
        self._launches_before = 0
        self._held_before = 0

    def observing(self) -> AbstractContextManager[Any]:
        return self._sim.unobserved()

    def device_findings(self) -> list[dict[str, Any]]:
        self._sim.write_trace()  # of the case so far: it may not come to its end
        return self._sim.drain_findings()[:FINDINGS_OF_A_STEP]

    def device_use(self) -> dict[str, Any]:
        begin = self._held_before
        self._held_before, peak = self._sim.memory_held(self.device.index)
        return {"begin_bytes": begin, "peak_bytes": peak, "host_waits": self._sim.drain_host_waits()[:FINDINGS_OF_A_STEP]}

    def device_launches(self) -> int:
        return self._sim.launches() - self._launches_before

    def rendezvous(self) -> None:
        super().rendezvous()
        self._sim.synchronize()  # nothing of an earlier case is unfinished
        machine = os.environ.get("FSDP_SIM_MACHINE", "")  # a case may choose one by a switch
        if machine != self._sim.machine():
            self._sim.set_machine(machine)
        self._sim.drain_findings()
        self._launches_before = self._sim.launches()
        self.device_use()
        self._sim.begin_trace_of(self.context.case["id"])
        self._begin_stretch()

    def _begin_stretch(self) -> None:
        if self._sim.machine():
            self._sim.mark()

    def virtual_time(self) -> dict[str, int]:
        if not self._sim.machine():
            return {}
        numbers = dataclasses.asdict(self._sim.since_mark())
        self._begin_stretch()
        return {name: numbers[name] for name in ("duration", "compute", "communication", "exposed_communication")}

    def end_case(self) -> None:
        super().end_case()
        self._sim.end_trace()

    def shard(self, model: Model) -> None:
        super().shard(model)
        holders: dict[int, list[Any]] = {}  # by storage: FSDP1 has many parameters in one
        for parameter in self.parameters(model):
            if parameter.value is not None and parameter.value.device.type != "meta":
                holders.setdefault(parameter.value.untyped_storage()._cdata, []).append(parameter)
        for held in holders.values():
            self._sim.name_buffer(held[0].value, ", ".join(parameter.name for parameter in held))


def _name_streams(fsdp_sim: Any) -> None:
    """FSDP's own, by the names it has for them."""
    fsdp2_init, fsdp1_init = FSDPCommContext.lazy_init, _runtime_utils._init_streams

    @functools.wraps(fsdp2_init)
    def lazy_init(context: FSDPCommContext, device: torch.device) -> None:
        fsdp2_init(context, device)
        if device.type != "sim":  # beside it a program may train on the CPU, which has no streams
            return
        for name in ("all_gather_copy_in_stream", "all_gather_stream", "reduce_scatter_stream", "all_reduce_stream"):
            fsdp_sim.name_stream(getattr(context, name), name)

    @functools.wraps(fsdp1_init)
    def init_streams(state: Any) -> None:
        fsdp1_init(state)
        for name in ("_unshard_stream", "_post_backward_stream", "_pre_unshard_stream", "_all_reduce_stream"):
            stream = getattr(state, name)
            if getattr(stream, "stream_id", 0) != 0:
                fsdp_sim.name_stream(stream, name.removeprefix("_"))

    FSDPCommContext.lazy_init = lazy_init
    _runtime_utils._init_streams = init_streams


def _place_of(site: str) -> tuple[str, int]:
    name, _, line = site.rpartition(":")
    folder = Path(torch.distributed.fsdp.__file__).parent
    found = [path for path in (folder / f"{name}.py", folder / "_fully_shard" / f"{name}.py") if path.exists()]
    text = linecache.getline(str(found[0]), int(line)) if found and line.isdecimal() else ""
    if not any(wait in text for wait in (".wait_", ".synchronize()", "_no_dispatch_record_stream(")):
        raise NotThere(f"--without-wait {site}: PyTorch {torch.__version__} has no wait there ({text.strip() or 'no such line'})")
    return str(found[0]), int(line)


def _forget(fsdp_sim: Any, sites: str) -> None:
    """A site: a file of torch.distributed.fsdp without folder and suffix, and a line of it that waits, or that keeps memory for a stream. Several are
    joined by +, where each covers for the other."""
    places = {_place_of(site) for site in sites.split("+")}

    def forgetting(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any) -> Any:
            caller = sys._getframe(1)
            if (caller.f_code.co_filename, caller.f_lineno) not in places:
                return function(*args)

        return call

    for cls, waits in ((fsdp_sim.Stream, ("wait_stream", "wait_event", "synchronize")), (fsdp_sim.Event, ("synchronize",))):
        for wait in waits:
            setattr(cls, wait, forgetting(getattr(cls, wait)))
    for module in (_runtime_utils, _flat_param):  # FSDP1 has a function of its own around record_stream, which each file imports
        module._no_dispatch_record_stream = forgetting(module._no_dispatch_record_stream)
