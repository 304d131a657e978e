"""The suite's own shared memory (impl/fsdp/comm/shm) as a backend of torch.distributed."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


class NotThere(RuntimeError):
    """What to do about it is in the message."""


def register(module: Path | None, device: torch.device) -> Callable[..., Any]:
    """Makes `shm` a backend for tensors of that device, the CPU's or a GPU's, and answers what makes one. `module` is what the build has made of impl/fsdp/comm/c10d, for this PyTorch and this Python."""
    if module is None:
        raise NotThere("--backend shm needs --c10d-module: the module fsdp_c10d-torch*.so of the build's bin folder (fsdp-cts passes it on)")
    spec = importlib.util.spec_from_file_location("fsdp_c10d", module)
    assert spec is not None and spec.loader is not None
    try:
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
    except ImportError as error:
        raise NotThere(
            f"--backend shm: {module} cannot be loaded: {error}. It serves the Python and the PyTorch that it was built for: "
            "build it anew for this one (ci/build with FSDP_CTS_PYTHON), or leave out --backend shm"
        ) from error
    make = functools.partial(loaded.make_shm_backend, device=str(device))
    dist.Backend.register_backend("shm", make, extended_api=True, devices=[device.type])
    return make
