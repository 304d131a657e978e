"""Waiting where a scenario puts a delay: the host, or the stream that an accelerator works on now."""

from __future__ import annotations

import functools
import time

import torch


_counted = 0.0


def clock() -> int:
    """In milliseconds from any beginning; delays that were counted only have passed on it."""
    return time.monotonic_ns() // 1_000_000 + int(_counted * 1000)


def sleep(seconds: float, device: torch.device) -> None:
    """On a CPU returns after the time; on an accelerator at once, and what is put on the current stream next comes so much later. On the
    simulated one nothing is late but in virtual time, since what a delay would bring to light is found without it: there delays are counted,
    and hold up the current stream."""
    if seconds <= 0:
        return
    if device.type == "sim":
        global _counted
        _counted += seconds
        simulated = torch.get_device_module("sim")
        simulated.delay_stream(simulated.current_stream(device), round(seconds * 1e9))
    elif device.type == "cpu":
        time.sleep(seconds)
    else:
        torch.cuda._sleep(int(seconds * _cycles_per_second(device)))


@functools.cache
def _cycles_per_second(device: torch.device) -> float:
    cycles = 10_000_000
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    start.record()
    torch.cuda._sleep(cycles)
    end.record()
    end.synchronize()
    return cycles / (start.elapsed_time(end) / 1000)
