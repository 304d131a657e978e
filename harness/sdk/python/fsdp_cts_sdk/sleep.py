"""Waiting where a scenario puts a delay: the host, or the stream that an accelerator works on now."""

from __future__ import annotations

import functools
import time

import torch


def sleep(seconds: float, device: torch.device) -> None:
    """On a CPU returns after the time; on an accelerator at once, and what is put on the current stream next comes so much later. On the
    simulated one nothing is late: what a delay would bring to light is found without it."""
    if seconds <= 0 or device.type == "sim":
        return
    if device.type == "cpu":
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
