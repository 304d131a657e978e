"""The verb `compile`: torch.compile with Inductor, and the proof that something was compiled."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def compiled(module: nn.Module, skip_fsdp_guards: bool) -> Callable[..., Any]:
    """What is called in the module's place. A forward for which the compiler never saw a graph is no compiled one and raises."""
    from torch._inductor.compile_fx import compile_fx  # half a second that no other case should pay
    from torch._inductor.cpu_vec_isa import VecISA

    torch._dynamo.config.skip_fsdp_guards = skip_fsdp_guards
    # ATen has read it long ago. Inductor reads it too, and what it writes for `default` does not always compile.
    os.environ.pop("ATEN_CPU_CAPABILITY", None)
    # What the processor says it has, it has: Inductor would have every rank prove it by processes that import torch, one for each instruction set. It
    # takes no word for what it asks beyond that (bf16, VNNI, AMX), and so is told that it has not been proved.
    if torch._inductor.config.cpp.vec_isa_ok is None:
        torch._inductor.config.cpp.vec_isa_ok = True
        VecISA.check_build = lambda self, code: False
    graphs = 0

    def count(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        nonlocal graphs
        graphs += 1
        return compile_fx(graph, inputs)

    optimized = torch.compile(module, backend=count)

    def call(*inputs: torch.Tensor) -> Any:
        result = optimized(*inputs)
        if graphs == 0:
            raise RuntimeError("torch.compile ran the whole forward as it is: no graph reached Inductor")
        return result

    return call


def forget() -> None:
    """Compiled code would outlive the modules of its case."""
    torch._dynamo.reset()
