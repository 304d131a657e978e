"""What happened on this rank in a case, in order: collectives, as a tap below the library sees them, and where layers begin to compute.
The SDK owns it and stamps every event with the phase of the verb that is running: neither the adapter nor the library says when
something happened."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from fsdp_cts_sdk.graph import Graph

Event = dict[str, Any]


class Trace:
    def __init__(self) -> None:
        self.phase: str | None = "other"  # the interpreter's; None: the observer is at work, and nothing is noted
        self.on_compute: Callable[[str], None] = lambda path: None  # the interpreter's
        self._events: list[Event] = []

    def collective(
        self,
        op: str,
        dtype: str,
        in_numel: int,
        out_numel: int,
        group: Sequence[int],
        reduce_op: str | None = None,
        unit: str | None = None,
    ) -> None:
        """For taps: a collective is about to be handed to the backend. `unit` is for whom, as the library says."""
        sizes = {"in_numel": in_numel, "out_numel": out_numel}
        self._note({"op": op, "dtype": dtype, "reduce_op": reduce_op, **sizes, "group": list(group), "unit": unit})

    def compute(self, path: str) -> None:
        """The forward, or the backward, of the module at this path is about to compute."""
        self._note({"op": "compute", "unit": path})
        self.on_compute(path)

    def drain(self) -> list[Event]:
        """The protocol's events since the last call."""
        drained, self._events = self._events, []
        return drained

    def _note(self, event: Event) -> None:
        if self.phase is not None:
            self._events.append({**event, "phase": self.phase})

    def __deepcopy__(self, _: Any) -> Trace:
        return self  # a copy of a model notes where the model does


def trace_computation(root: nn.Module, trace: Trace, path: str = "") -> None:
    """Every layer below root notes when its forward and its backward begin: after the hooks that an FSDP library puts around them.
    Containers and graphs do not: their layers do."""
    if not isinstance(root, (nn.Sequential, nn.ModuleList, nn.ModuleDict, Graph)):
        root.forward = functools.partial(_noted_forward, root, path, trace)
        return
    for name, child in root.named_children():
        trace_computation(child, trace, f"{path}.{name}" if path else name)


def _noted_forward(module: nn.Module, path: str, trace: Trace, *args: Any, **kwargs: Any) -> Any:
    forward = type(module).forward
    if torch.compiler.is_compiling():
        return forward(module, *args, **kwargs)
    trace.compute(path)
    result = forward(module, *args, **kwargs)
    output = result[0] if isinstance(result, tuple) else result
    if output.grad_fn is not None:
        # Autograd runs it after the hooks of the output, where FSDP waits for backward, and right before the layer's own gradients.
        output.grad_fn.register_prehook(lambda _: trace.compute(path))
    return result
