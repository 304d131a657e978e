"""A simulated accelerator, device type `sim`: harness/sim/sim.hpp says what it is. Importing this registers it, as torch.sim and with
torch.accelerator.

    import torch, fsdp_sim
    x = torch.ones(2, device="sim")
    ...
    for finding in fsdp_sim.drain_findings():
        print(finding["text"])

torch.distributed takes it as `init_process_group("cpu:gloo,sim:sim")`."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from fsdp_sim import _binding
from fsdp_sim._binding import begin_trace_of, drain_findings, drain_host_waits, end_trace, host_access, launches, machine, mark, memory_held, name_buffer
from fsdp_sim._binding import set_machine, set_memory_limit, write_trace

__all__ = [
    *("drain_findings", "drain_host_waits", "host_access", "launches", "memory_held", "name_buffer", "name_stream", "set_memory_limit"),
    *("transport", "unobserved"),
    *("StepNumbers", "delay_stream", "machine", "mark", "set_machine", "since_mark"),
    *("begin_trace", "begin_trace_of", "end_trace", "write_trace"),
    *("Event", "Stream", "current_device", "current_stream", "device", "device_count", "is_available", "stream", "synchronize"),
]


@contextlib.contextmanager
def unobserved() -> Iterator[None]:
    """Inside, no access is noted and no copy makes the host wait: for whoever only looks."""
    _binding.suspend()
    try:
        yield
    finally:
        _binding.resume()


def name_stream(stream: torch.Stream, name: str) -> None:
    """How findings call it."""
    _binding.name_stream(stream.stream_id, stream.device_index, name)


@dataclasses.dataclass(frozen=True)
class StepNumbers:
    """A stretch of the program in virtual time; nanoseconds, and bytes by device. harness/sim/sim.hpp says what each is."""

    duration: int
    compute: int
    communication: int
    exposed_communication: int
    peak_memory: list[int]


def since_mark() -> StepNumbers:
    """Since the last mark()."""
    return StepNumbers(**_binding.since_mark())


def delay_stream(stream: torch.Stream, nanoseconds: int) -> None:
    """In virtual time, what is put on the stream from now on comes so much later."""
    _binding.delay_stream(stream.stream_id, stream.device_index, nanoseconds)


def begin_trace(file: str | os.PathLike[str]) -> None:
    """What runs from now on goes into a file for chrome://tracing and Perfetto, which write_trace() and end_trace() write."""
    _binding.begin_trace(os.fspath(file))


# What torch.get_device_module("sim") answers, in the words of torch.cuda.


def _index(device: Any = None) -> int:
    if device is None:
        return torch.accelerator.current_device_index()
    if isinstance(device, int):
        return device
    index = torch.device(device).index
    return torch.accelerator.current_device_index() if index is None else index


class Stream(torch.Stream):
    def __new__(cls, device: Any = None, priority: int = 0, **keys: Any) -> Stream:
        if keys:  # a stream that is there already
            return super().__new__(cls, priority=priority, **keys)
        return super().__new__(cls, device=torch.device("sim", _index(device)), priority=priority)

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        event = Event() if event is None else event
        event.record(self)
        return event


class Event(torch.Event):
    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Event:
        return super().__new__(cls, device="sim", enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)


def _as_stream(found: torch.Stream) -> Stream:
    return Stream(stream_id=found.stream_id, device_index=found.device_index, device_type=found.device_type)


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def is_built() -> bool:
    return True


def init() -> None:
    """Nothing to do; that it can be called is asked for."""


def _lazy_init() -> None:
    init()


def _is_in_bad_fork() -> bool:
    return False


def device_count() -> int:
    return _binding.device_count()


def current_device() -> int:
    return torch.accelerator.current_device_index()


def set_device(device: Any) -> None:
    torch.accelerator.set_device_index(_index(device))


class device(torch.accelerator.device_index):  # as torch.cuda.device: a context manager with a small name
    def __init__(self, device: Any) -> None:
        super().__init__(None if device is None else _index(device))


def current_stream(device: Any = None) -> Stream:
    return _as_stream(torch.accelerator.current_stream(_index(device)))


def default_stream(device: Any = None) -> Stream:
    return Stream(stream_id=0, device_index=_index(device), device_type=torch._C._autograd.DeviceType.PrivateUse1.value)


def set_stream(stream: torch.Stream) -> None:
    torch.accelerator.set_stream(stream)


class stream:
    """As torch.cuda.stream."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self._stream = stream

    def __enter__(self) -> torch.Stream | None:
        if self._stream is not None:
            self._before = torch.accelerator.current_stream(self._stream.device_index)
            self._device = torch.accelerator.current_device_index()
            torch.accelerator.set_stream(self._stream)
        return self._stream

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            torch.accelerator.set_stream(self._before)
            torch.accelerator.set_device_index(self._device)


def synchronize(device: Any = None) -> None:
    torch.accelerator.synchronize(_index(device))


def get_device_properties(device: Any = None) -> Any:
    return type("Properties", (), {"name": "sim", "total_memory": _binding.memory_info(_index(device))[1]})()


def get_device_name(device: Any = None) -> str:
    return "sim"


def mem_get_info(device: Any = None) -> tuple[int, int]:
    return _binding.memory_info(_index(device))


def empty_cache() -> None:
    torch.accelerator.empty_cache()


def _memory(name: str) -> Callable[..., Any]:
    def call(device: Any = None) -> Any:
        return getattr(torch.accelerator, name)(_index(device))

    call.__name__ = name
    return call


for _name in (
    *("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_stats"),
    *("reset_peak_memory_stats", "reset_accumulated_memory_stats"),
):
    globals()[_name] = _memory(_name)


# The device draws its random numbers from the CPU's generator.
def manual_seed(seed: int) -> None:
    torch.default_generator.manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    manual_seed(seed)


def get_rng_state(device: Any = "sim") -> torch.Tensor:
    return torch.default_generator.get_state()


def set_rng_state(state: torch.Tensor, device: Any = "sim") -> None:
    torch.default_generator.set_state(state)


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16]


# The backend of torch.distributed.
def _gloo(options: Any) -> Any:
    return dist.ProcessGroupGloo(options.store, options.group_rank, options.group_size, options.timeout)


transport: Callable[[Any], Any] = _gloo  # makes the backend for the CPU that carries the device's collectives


def _make_backend(options: Any, _: Any) -> Any:
    options.store = dist.PrefixStore("sim", options.store)  # the group may have a transport for the CPU, too
    return _binding.make_backend(transport(options))


torch.utils.rename_privateuse1_backend("sim")
torch._register_device_module("sim", sys.modules[__name__])
torch.utils.generate_methods_for_privateuse1_backend(for_tensor=True, for_module=True, for_storage=True)
dist.Backend.register_backend("sim", _make_backend, extended_api=True, devices=["sim"])
