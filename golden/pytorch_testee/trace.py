"""Sees every collective that a case issues, by standing in front of torch.distributed's functions. The functions look each other up
inside their own module, so what one of them calls in turn (an all-gather of objects, a barrier) is not seen: one event per call from outside."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.distributed import distributed_c10d

from fsdp_cts_sdk.dtypes import dtype_name
from fsdp_cts_sdk.sleep import sleep
from pytorch_testee.groups import Groups

Event = dict[str, Any]

_REDUCE_OPS = {dist.ReduceOp.SUM: "sum", dist.ReduceOp.AVG: "avg", dist.ReduceOp.MAX: "max"}


class CollectiveTrace:
    def __init__(self, groups: Groups) -> None:
        self.events: list[Event] = []
        self.phase: Callable[[], str] = lambda: "other"
        self.delay_before_reduce = 0.0
        self.device = groups.device
        self._groups = groups
        self._unit: str | None = None
        self._silent = False
        self._install()

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        before, self._silent = self._silent, True
        try:
            yield
        finally:
            self._silent = before

    @contextlib.contextmanager
    def on_behalf_of(self, unit: str | None) -> Iterator[None]:
        """Collectives inside belong to this unit."""
        before, self._unit = self._unit, unit
        try:
            yield
        finally:
            self._unit = before

    def drain(self) -> list[Event]:
        drained, self.events = self.events, []
        return drained

    def _record(self, op: str, sent: torch.Tensor, in_numel: int, out_numel: int, group: Any, reduce_op: Any = None) -> None:
        if self._silent:
            return
        self.events.append({
            "op": op,
            "phase": self.phase(),
            "dtype": dtype_name(sent.dtype),
            "reduce_op": _reduce_name(reduce_op),
            "in_numel": in_numel,
            "out_numel": out_numel,
            "group": self._groups.ranks(group),
            "unit": self._unit,
        })

    def _install(self) -> None:
        record = self._record

        def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
            record("all_gather", input_tensor, input_tensor.numel(), output_tensor.numel(), group)

        def all_gather(tensor_list, tensor, group=None, async_op=False):
            record("all_gather", tensor, tensor.numel(), sum(t.numel() for t in tensor_list), group)

        def reduce_scatter_tensor(output, input, op=dist.ReduceOp.SUM, group=None, async_op=False):
            sleep(self.delay_before_reduce, self.device)
            record("reduce_scatter", input, input.numel(), output.numel(), group, op)

        def all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
            record("all_reduce", tensor, tensor.numel(), tensor.numel(), group, op)

        def broadcast(tensor, src=None, group=None, async_op=False, group_src=None):
            record("broadcast", tensor, tensor.numel(), tensor.numel(), group)

        for seen in (all_gather_into_tensor, all_gather, reduce_scatter_tensor, all_reduce, broadcast):
            _stand_before(dist, seen)

        def all_gather_tensor(self, gather_dim, group, tag=""):
            members = _functional_group(group, tag)
            record("all_gather", self, self.numel(), self.numel() * members.size(), members)

        def functional_reduce_scatter(self, reduceOp, scatter_dim, group, tag=""):
            members = _functional_group(group, tag)
            record("reduce_scatter", self, self.numel(), self.numel() // members.size(), members, reduceOp)

        def functional_all_reduce(self, reduceOp, group, tag=""):
            record("all_reduce", self, self.numel(), self.numel(), _functional_group(group, tag), reduceOp)

        _stand_before(funcol, all_gather_tensor)
        _stand_before(funcol, functional_reduce_scatter, "reduce_scatter_tensor")
        _stand_before(funcol, functional_all_reduce, "all_reduce")


def _stand_before(module: Any, seen: Callable[..., None], name: str | None = None) -> None:
    name = name or seen.__name__
    function = getattr(module, name)

    @functools.wraps(function)
    def both(*args: Any, **kwargs: Any) -> Any:
        seen(*args, **kwargs)
        return function(*args, **kwargs)

    setattr(module, name, both)


def _functional_group(group: Any, tag: str) -> dist.ProcessGroup:
    return distributed_c10d._resolve_process_group(funcol._resolve_group_name(group, tag))


def _reduce_name(op: Any) -> str | None:
    if op is None or isinstance(op, str):
        return op
    return next((name for known, name in _REDUCE_OPS.items() if op == known), None)
